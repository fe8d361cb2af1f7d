-- What each part gets of its own: for each term its postings in a namespace, as one array that is sent as PostgreSQL
-- sends arrays, each posting * 4 + frequency level; of the transaction's tenant only. It runs as the owner: under
-- row-level security a GIN index is not searched, because `@>` is not leakproof; so the tenant is asked for here, and in
-- a way that no index is searched for it: a key's list is one namespace's already. Without the index this is slow.
CREATE OR REPLACE FUNCTION postings_{part}(namespace_id bigint, terms text[]) RETURNS bytea[]
LANGUAGE plpgsql STABLE STRICT SECURITY DEFINER SET search_path = {schema}, pg_temp AS $$
DECLARE
    here text COLLATE "C" := current_setting('commonplace.tenant', true);
    found bytea[] := ARRAY[]::bytea[];
    term text;
    hash bytea;
    key bigint;
    twice bytea;
    oftener bytea;
BEGIN
    FOREACH term IN ARRAY terms LOOP
        hash := substring(sha256(convert_to(term, 'UTF8')) FROM 1 FOR 8);
        hash := set_byte(hash, 7, get_byte(hash, 7) & 252);
        key := (term_keys(namespace_id, hash))[1];
        twice := set_byte(hash, 7, get_byte(hash, 7) | 2);
        oftener := set_byte(hash, 7, get_byte(hash, 7) | 3);
        found := array_append(found, (
            SELECT array_send(array_agg(c.posting * 4 + CASE
                WHEN position(oftener IN c.packed) > 0 THEN 3
                WHEN position(twice IN c.packed) > 0 THEN 2
                ELSE 1
            END))
            FROM (
                SELECT c.posting, coalesce(c.terms, packed_terms(c.tokens, c.repeated)) AS packed
                FROM chunk_{part} AS c
                WHERE (c.tenant = here) IS TRUE AND c.ended_commit IS NULL AND c.namespace + 0 = namespace_id
                    AND term_keys(c.namespace, coalesce(c.terms, packed_terms(c.tokens, c.repeated))) @> ARRAY[key]
            ) AS c
        ));
    END LOOP;
    RETURN found;
END $$;

-- Rows of `pending` and `attempt` live for seconds to an hour, and every search looks into `pending`: vacuum them by count,
-- not by share. The others are vacuumed after 1 in 20 rows, because a share of a fifth of a large table comes too late;
-- inserted rows count too, so that few are left to freeze at once. A commit updates the row of its namespace and a claim
-- that of a mark, without a change of an indexed column: the free space of a page takes the new version, and no index
-- is written (HOT).
ALTER TABLE pending_{part} SET (
    fillfactor = 80,
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, autovacuum_analyze_threshold = 2000
);
ALTER TABLE attempt_{part} SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000);
ALTER TABLE namespace_{part} SET (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);
DO $$ BEGIN
    FOR number IN 1 .. 6 LOOP
        EXECUTE format('ALTER TABLE %I SET (autovacuum_vacuum_scale_factor = 0.05,'
            ' autovacuum_vacuum_insert_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05)',
            (ARRAY['chunk', 'embedding', 'entry', 'history', 'label', 'operation'])[number] || '_{part}');
    END LOOP;
END $$;
