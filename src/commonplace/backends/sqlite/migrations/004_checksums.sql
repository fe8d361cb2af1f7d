-- A checksum with each row that nothing else can be made from (see checksums.py). NULL: the row has none yet.
-- Adding the columns is instant, however large the book; `unchecked` lists the rows whose checksums are to be added.
-- Programs from before this step can no longer write (see 003), so none leaves a checksum that is wrong.
ALTER TABLE namespace ADD COLUMN checksum INTEGER;
ALTER TABLE entry ADD COLUMN checksum INTEGER;
ALTER TABLE history ADD COLUMN checksum INTEGER;
ALTER TABLE vector ADD COLUMN checksum INTEGER;
ALTER TABLE operation ADD COLUMN checksum INTEGER;
ALTER TABLE system ADD COLUMN checksum INTEGER;

-- Ranges of ids (of a vector: its chunk) whose rows may have no checksum.
CREATE TABLE unchecked (
    part TEXT NOT NULL,
    first INTEGER NOT NULL,
    last INTEGER NOT NULL
);
INSERT INTO unchecked SELECT 'namespace', 1, namespace FROM next_id WHERE namespace > 0;
INSERT INTO unchecked SELECT 'entry', 1, entry FROM next_id WHERE entry > 0;
INSERT INTO unchecked SELECT 'history', 1, max(id) FROM history HAVING max(id) > 0;
INSERT INTO unchecked SELECT 'vector', 1, chunk FROM next_id WHERE vector > 0;
INSERT INTO unchecked SELECT 'system', 0, 0 FROM system LIMIT 1;
