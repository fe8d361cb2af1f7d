-- A write costs less log and fewer bytes: the index of keywords was nine tenths of the log of an insert.
-- Servers search by keywords in memory, from `chunk.terms`. Only a namespace that memory does not hold needs an index of
-- them. It is built when there is such a namespace (maintenance.py), as that of vectors is. New passages have no `tokens`
-- and no `repeated`; those of former versions keep theirs until `commonplace reindex --keywords`.
DROP INDEX IF EXISTS chunk_tokens;

-- What that index holds: for each term of a passage its hash, mixed with the namespace, without the frequency level.
CREATE OR REPLACE FUNCTION term_keys(namespace bigint, terms bytea) RETURNS bigint[] LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT array_agg((('x' || encode(substring(terms FROM place FOR 8), 'hex'))::bit(64)::bigint & -4)
        # (hashint8extended(namespace, 0) & -4))
    FROM generate_series(1, octet_length(terms), 8) AS place
$$;

-- One index instead of two. Whoever writes to a namespace takes ids while its row is locked, so the order of ids is the
-- order of commits, and memory reads the passages after the last one that it knows.
ALTER TABLE chunk DROP CONSTRAINT chunk_pkey;
ALTER TABLE chunk ADD PRIMARY KEY (tenant, namespace, id);
DROP INDEX IF EXISTS chunk_live;

-- COMMIT

-- The last entries of one kind, where it is one of many. The other collation compares in the same way. It keeps these
-- indexes from queries in the order of keys: without statistics PostgreSQL takes the smallest index that has the
-- namespace and the kind, and sorts all that it finds.
DROP INDEX entry_created;
DROP INDEX entry_updated;
CREATE INDEX entry_created ON entry (namespace, kind COLLATE "POSIX", created_at, id);
CREATE INDEX entry_updated ON entry (namespace, kind COLLATE "POSIX", updated_at, id);

-- COMMIT

-- Attempts are added in the order of time, and only looked up by it to delete old ones.
DROP INDEX attempt_age;
CREATE INDEX attempt_age ON attempt USING brin (made_at) WITH (pages_per_range = 8, autosummarize = on);
