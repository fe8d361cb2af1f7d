-- What a namespace holds counts its former states too: a limit on it bounds the disk, and every change adds a state.
-- `former_commit` is the commit that the two counts are of. Where the namespace has gone on without them, as a server of
-- the schema before lets it and as all were until now, the next write counts anew: no row has to be filled in here.
ALTER TABLE namespace
    ADD COLUMN former_states bigint NOT NULL DEFAULT 0,
    ADD COLUMN former_bytes bigint NOT NULL DEFAULT 0,
    ADD COLUMN former_commit bigint NOT NULL DEFAULT 0;
