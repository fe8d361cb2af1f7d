-- What other columns of a state say is stored once. A column `own_…` holds what was given, or a short form of it (see
-- checksums.py); the column that everybody reads is computed from it:
--
-- - `text`, which is nearly always also a string inside the value: `text_place` says where in the value it is.
-- - `identity`: the bytes of a hash or a UUID.
-- - `attributes`: a control character for each of their frequent parts.
-- - `heading`: an empty BLOB for the words of a file's path, or of a record's type and tags.
-- - `updated_at` and `valid_from`: an empty BLOB for `created_at` and `updated_at`.
-- - `begun_by` and `ended_by`: an empty BLOB for 'created', x'75' for 'updated'.
--
-- Rows that were written before this step have everything in full, so no row needs to be changed here. Three indexes are
-- built again, with a number for each of the usual kinds.
DROP VIEW counter;  -- ALTER TABLE looks through all views; see 003
DROP TRIGGER usage_update;
DROP TRIGGER usage_delete;
DROP TRIGGER former_usage_insert;
DROP TRIGGER former_usage_delete;
DROP TRIGGER former_usage_update;
DROP INDEX entry_identity;
DROP INDEX entry_created;
DROP INDEX entry_updated;
ALTER TABLE entry RENAME COLUMN identity TO own_identity;
ALTER TABLE entry RENAME COLUMN attributes TO own_attributes;
ALTER TABLE entry RENAME COLUMN updated_at TO own_updated_at;
ALTER TABLE entry RENAME COLUMN valid_from TO own_valid_from;
ALTER TABLE entry RENAME COLUMN heading TO own_heading;
ALTER TABLE entry RENAME COLUMN text TO own_text;
ALTER TABLE entry RENAME COLUMN begun_by TO own_begun_by;
ALTER TABLE entry ADD COLUMN text_place INTEGER;
ALTER TABLE entry ADD COLUMN identity TEXT GENERATED ALWAYS AS (
    CASE
    WHEN typeof(own_identity) <> 'blob' THEN own_identity
    WHEN length(own_identity) = 32 THEN lower(hex(own_identity))
    ELSE lower(
        hex(substr(own_identity, 1, 4)) || '-' || hex(substr(own_identity, 5, 2)) || '-'
        || hex(substr(own_identity, 7, 2)) || '-' || hex(substr(own_identity, 9, 2)) || '-'
        || hex(substr(own_identity, 11))
    ) END
) VIRTUAL;
ALTER TABLE entry ADD COLUMN attributes TEXT GENERATED ALWAYS AS (
    CASE unicode(own_attributes)
    WHEN 1 THEN '{"type":"' || replace(replace(replace(replace(replace(substr(own_attributes, 2),
        char(2), '","source":"'), char(3), '","tags":["'), char(4), '","'), char(5), '"],"confidence":'),
        char(6), '","tags":[],"confidence":')
    WHEN 7 THEN '{"role":"' || replace(replace(substr(own_attributes, 2),
        char(8), '","resourceId":"'), char(14), '","threadId":"')
    WHEN 15 THEN '{"size":' || replace(substr(own_attributes, 2), char(16), ',"lines":')
    ELSE own_attributes END
) VIRTUAL;
ALTER TABLE entry ADD COLUMN updated_at INTEGER GENERATED ALWAYS AS (
    CASE own_updated_at WHEN x'' THEN created_at ELSE own_updated_at END
) VIRTUAL;
ALTER TABLE entry ADD COLUMN valid_from INTEGER GENERATED ALWAYS AS (
    CASE own_valid_from WHEN x'' THEN updated_at ELSE own_valid_from END
) VIRTUAL;
ALTER TABLE entry ADD COLUMN heading TEXT GENERATED ALWAYS AS (
    CASE
    WHEN typeof(own_heading) <> 'blob' THEN own_heading
    WHEN kind = 'file' THEN substr(replace(key, char(1), '/'), 2)
    ELSE substr(own_attributes, 2, instr(own_attributes, char(2)) - 2) || CASE
        WHEN instr(own_attributes, char(3)) THEN ' ' || replace(substr(own_attributes,
            instr(own_attributes, char(3)) + 1,
            instr(own_attributes, char(5)) - instr(own_attributes, char(3)) - 1), char(4), ' ')
        ELSE '' END
    END
) VIRTUAL;
ALTER TABLE entry ADD COLUMN text TEXT GENERATED ALWAYS AS (
    CASE
    WHEN text_place IS NULL THEN own_text
    WHEN text_place > 0 THEN substr(value, text_place >> 24, text_place & 0xFFFFFF)
    WHEN json_valid(substr(value, -text_place >> 24, -text_place & 0xFFFFFF))
        THEN substr(value, -text_place >> 24, -text_place & 0xFFFFFF) ->> '$'
    END
) VIRTUAL;
ALTER TABLE entry ADD COLUMN begun_by TEXT GENERATED ALWAYS AS (
    CASE own_begun_by WHEN x'' THEN 'created' WHEN x'75' THEN 'updated' ELSE own_begun_by END
) VIRTUAL;
ALTER TABLE entry ADD COLUMN kind_code GENERATED ALWAYS AS (
    CASE kind WHEN 'record' THEN 0 WHEN 'message' THEN 1 WHEN 'file' THEN 2 WHEN 'directory' THEN 3
    WHEN 'thread' THEN 4 WHEN 'item' THEN 5 ELSE kind END
) VIRTUAL;

-- The same for rows from before this step and for new ones, so that the index is unique over both. Of a record's hash,
-- half is enough to find it.
ALTER TABLE entry ADD COLUMN identity_key BLOB GENERATED ALWAYS AS (
    CASE
    WHEN typeof(own_identity) = 'blob' THEN substr(own_identity, 1, iif(kind = 'record', 16, 32))
    WHEN length(own_identity) = 64 AND lower(hex(unhex(own_identity))) = own_identity
        THEN substr(unhex(own_identity), 1, iif(kind = 'record', 16, 32))
    WHEN length(own_identity) = 36 AND length(unhex(own_identity, '-')) = 16 AND lower(own_identity) = own_identity
        AND own_identity GLOB '????????-????-????-????-????????????' THEN unhex(own_identity, '-')
    ELSE own_identity END
) VIRTUAL;
CREATE UNIQUE INDEX entry_identity ON entry (namespace, identity_key, kind_code) WHERE identity_key IS NOT NULL;
CREATE INDEX entry_created ON entry (namespace, kind_code, created_at);
CREATE INDEX entry_updated ON entry (namespace, kind_code, updated_at);

-- It held the passage's id twice.
DROP INDEX pending_namespace;
CREATE INDEX pending_namespace ON pending (namespace);

ALTER TABLE history RENAME COLUMN identity TO own_identity;
ALTER TABLE history RENAME COLUMN attributes TO own_attributes;
ALTER TABLE history RENAME COLUMN updated_at TO own_updated_at;
ALTER TABLE history RENAME COLUMN valid_from TO own_valid_from;
ALTER TABLE history RENAME COLUMN heading TO own_heading;
ALTER TABLE history RENAME COLUMN begun_by TO own_begun_by;
ALTER TABLE history RENAME COLUMN ended_by TO own_ended_by;
ALTER TABLE history ADD COLUMN identity TEXT GENERATED ALWAYS AS (
    CASE
    WHEN typeof(own_identity) <> 'blob' THEN own_identity
    WHEN length(own_identity) = 32 THEN lower(hex(own_identity))
    ELSE lower(
        hex(substr(own_identity, 1, 4)) || '-' || hex(substr(own_identity, 5, 2)) || '-'
        || hex(substr(own_identity, 7, 2)) || '-' || hex(substr(own_identity, 9, 2)) || '-'
        || hex(substr(own_identity, 11))
    ) END
) VIRTUAL;
ALTER TABLE history ADD COLUMN attributes TEXT GENERATED ALWAYS AS (
    CASE unicode(own_attributes)
    WHEN 1 THEN '{"type":"' || replace(replace(replace(replace(replace(substr(own_attributes, 2),
        char(2), '","source":"'), char(3), '","tags":["'), char(4), '","'), char(5), '"],"confidence":'),
        char(6), '","tags":[],"confidence":')
    WHEN 7 THEN '{"role":"' || replace(replace(substr(own_attributes, 2),
        char(8), '","resourceId":"'), char(14), '","threadId":"')
    WHEN 15 THEN '{"size":' || replace(substr(own_attributes, 2), char(16), ',"lines":')
    ELSE own_attributes END
) VIRTUAL;
ALTER TABLE history ADD COLUMN updated_at INTEGER GENERATED ALWAYS AS (
    CASE own_updated_at WHEN x'' THEN created_at ELSE own_updated_at END
) VIRTUAL;
ALTER TABLE history ADD COLUMN valid_from INTEGER GENERATED ALWAYS AS (
    CASE own_valid_from WHEN x'' THEN updated_at ELSE own_valid_from END
) VIRTUAL;
ALTER TABLE history ADD COLUMN heading TEXT GENERATED ALWAYS AS (
    CASE
    WHEN typeof(own_heading) <> 'blob' THEN own_heading
    WHEN kind = 'file' THEN substr(replace(key, char(1), '/'), 2)
    ELSE substr(own_attributes, 2, instr(own_attributes, char(2)) - 2) || CASE
        WHEN instr(own_attributes, char(3)) THEN ' ' || replace(substr(own_attributes,
            instr(own_attributes, char(3)) + 1,
            instr(own_attributes, char(5)) - instr(own_attributes, char(3)) - 1), char(4), ' ')
        ELSE '' END
    END
) VIRTUAL;
ALTER TABLE history ADD COLUMN begun_by TEXT GENERATED ALWAYS AS (
    CASE own_begun_by WHEN x'' THEN 'created' WHEN x'75' THEN 'updated' ELSE own_begun_by END
) VIRTUAL;
ALTER TABLE history ADD COLUMN ended_by TEXT GENERATED ALWAYS AS (
    CASE own_ended_by WHEN x'' THEN 'created' WHEN x'75' THEN 'updated' ELSE own_ended_by END
) VIRTUAL;
CREATE VIEW counter AS SELECT * FROM "a newer commonplace has upgraded this book: restart this program with it";

CREATE TRIGGER usage_delete AFTER DELETE ON entry BEGIN
    UPDATE usage SET entries = entries - 1, bytes = bytes
        - octet_length(OLD.value) - coalesce(octet_length(OLD.text), 0) - octet_length(OLD.attributes)
    WHERE namespace = OLD.namespace;
END;

CREATE TRIGGER usage_update AFTER UPDATE OF value, own_text, text_place, own_attributes ON entry BEGIN
    UPDATE usage SET bytes = bytes
        + octet_length(NEW.value) + coalesce(octet_length(NEW.text), 0) + octet_length(NEW.attributes)
        - octet_length(OLD.value) - coalesce(octet_length(OLD.text), 0) - octet_length(OLD.attributes)
    WHERE namespace = NEW.namespace;
END;

CREATE TRIGGER former_usage_insert AFTER INSERT ON history BEGIN
    INSERT INTO usage (namespace, entries, bytes, former_states, former_bytes) VALUES (
        NEW.namespace, 0, 0, 1,
        200 + octet_length(NEW.value) + coalesce(octet_length(NEW.text), 0) + octet_length(NEW.attributes)
    )
    ON CONFLICT (namespace) DO UPDATE
        SET former_states = former_states + 1, former_bytes = former_bytes + excluded.former_bytes;
END;

CREATE TRIGGER former_usage_delete AFTER DELETE ON history BEGIN
    UPDATE usage SET former_states = former_states - 1, former_bytes = former_bytes
        - 200 - octet_length(OLD.value) - coalesce(octet_length(OLD.text), 0) - octet_length(OLD.attributes)
    WHERE namespace = OLD.namespace;
END;

CREATE TRIGGER former_usage_update AFTER UPDATE OF value, text, own_attributes ON history BEGIN
    UPDATE usage SET former_bytes = former_bytes
        + octet_length(NEW.value) + coalesce(octet_length(NEW.text), 0) + octet_length(NEW.attributes)
        - octet_length(OLD.value) - coalesce(octet_length(OLD.text), 0) - octet_length(OLD.attributes)
    WHERE namespace = NEW.namespace;
END;
