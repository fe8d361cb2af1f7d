-- What each part gets of its own: for each term its postings in a namespace, as one array that is sent as PostgreSQL
-- sends arrays, each posting * 4 + frequency level; of the transaction's tenant only. It runs as the owner: under
-- row-level security a GIN index is not searched, because `@>` is not leakproof; so the tenant is asked for here, and in
-- a way that no index is searched for it: a token's list is one namespace's already.
CREATE OR REPLACE FUNCTION postings_{part}(namespace_id bigint, terms text[]) RETURNS bytea[]
LANGUAGE plpgsql STABLE STRICT SECURITY DEFINER SET search_path = {schema}, pg_temp AS $$
DECLARE
    here text COLLATE "C" := current_setting('commonplace.tenant', true);
    prefix text := to_hex(namespace_id) || ':';
    found bytea[] := ARRAY[]::bytea[];
    term text;
    token text;
    twice text;
    oftener text;
BEGIN
    FOREACH term IN ARRAY terms LOOP
        token := prefix || term;
        twice := token || E'\x02';
        oftener := token || E'\x03';
        found := array_append(found, (
            SELECT array_send(array_agg(c.posting * 4 + CASE
                WHEN c.repeated IS NULL THEN 1
                WHEN oftener = ANY (c.repeated) THEN 3
                WHEN twice = ANY (c.repeated) THEN 2
                ELSE 1
            END))
            FROM chunk_{part} AS c
            WHERE (c.tenant = here) IS TRUE AND c.ended_commit IS NULL AND c.tokens @> ARRAY[token]
        ));
    END LOOP;
    RETURN found;
END $$;

-- Rows of these tables live for seconds to an hour, and every search looks into `pending`: vacuum them by count, not by
-- share. The others are vacuumed after 1 in 20 rows, because a share of a fifth of a large table comes too late.
ALTER TABLE pending_{part} SET (
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, autovacuum_analyze_threshold = 2000
);
ALTER TABLE attempt_{part} SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000);
ALTER TABLE namespace_{part} SET (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);
ALTER TABLE chunk_{part} SET (autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05);
ALTER TABLE embedding_{part} SET (autovacuum_vacuum_scale_factor = 0.05);
ALTER TABLE entry_{part} SET (autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05);
