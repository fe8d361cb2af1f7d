-- The rows that are derived from a new entry (labels, passages, keywords, pending marks, usage) are written later, for
-- many entries at once (see backlog.py). The namespace's row says which entries wait: those that began with
-- `waiting_commit` or later and have an id above `waiting_entry`, `waiting_count` of them. NULL: none waits.
ALTER TABLE namespace ADD COLUMN waiting_commit INTEGER;
ALTER TABLE namespace ADD COLUMN waiting_entry INTEGER;
ALTER TABLE namespace ADD COLUMN waiting_count INTEGER;
CREATE INDEX namespace_waiting ON namespace (id) WHERE waiting_entry IS NOT NULL;

-- A new entry is counted together with its other derived rows. An entry that waits is never changed or deleted before
-- that, so the other triggers stay.
DROP TRIGGER usage_insert;
