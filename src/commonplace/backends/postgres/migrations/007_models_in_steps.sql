-- A change of models marks the passages in steps, each in a transaction of its own, and only when few are pending.
-- `unmarked` is about how many are left to mark, NULL if none; the other columns are the last passage that was looked
-- at. The vectors of a retired model are removed in steps too, in the order of `at_chunk`.
ALTER TABLE model
    ADD COLUMN unmarked bigint,
    ADD COLUMN at_tenant text COLLATE "C" NOT NULL DEFAULT '',
    ADD COLUMN at_namespace bigint NOT NULL DEFAULT 0,
    ADD COLUMN at_chunk bigint NOT NULL DEFAULT 0;
