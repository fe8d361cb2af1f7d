-- A file can be overwritten while programs have it open (`cp copy.db book.db`). They tell by this mark, which they read
-- without SQLite: the book's identity, the generation of its rows, and the generation before it. See guard.py.
-- It has a table, and so a page, of its own; the two bytes at its start never occur in UTF-8 text.
CREATE TABLE generation (mark BLOB NOT NULL);
INSERT INTO generation VALUES (CAST(
    x'FFFE' || 'commonplace ' || lower(hex(randomblob(16)) || ' ' || hex(randomblob(8))) || ' ' || '0000000000000000'
    AS BLOB));

-- Programs of schema 1 and 2 do not look at the schema again once they have the book open. Each of their writes begins
-- with the table `counter`: this view makes it fail with words that say what to do. (ALTER TABLE … RENAME and DROP
-- COLUMN look through all views: a migration that needs them drops this view first and creates it again.)
CREATE TABLE next_id (
    namespace INTEGER NOT NULL,
    entry INTEGER NOT NULL,
    chunk INTEGER NOT NULL,
    vector INTEGER NOT NULL
);
INSERT INTO next_id SELECT namespace, entry, chunk, vector FROM counter;
DROP TABLE counter;
CREATE VIEW counter AS SELECT * FROM "a newer commonplace has upgraded this book: restart this program with it";
