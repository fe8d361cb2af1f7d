-- What each part gets of its own: the postings of each token by frequency level, of the transaction's tenant only. It
-- runs as the owner: under row-level security a GIN index is not searched, because `@>` is not leakproof; so the tenant
-- is asked for here, and in a way that no index is searched for it: a token's list is one namespace's already.
CREATE OR REPLACE FUNCTION postings_{part}(wanted text[]) RETURNS TABLE (place bigint, level integer, numbers bigint[])
LANGUAGE plpgsql STABLE STRICT SECURITY DEFINER SET search_path = {schema}, pg_temp AS $$
DECLARE
    here text COLLATE "C" := current_setting('commonplace.tenant', true);
    token text;
    twice text;
    oftener text;
BEGIN
    place := 0;
    FOREACH token IN ARRAY wanted LOOP
        place := place + 1;
        twice := token || E'\x02';
        oftener := token || E'\x03';
        RETURN QUERY
            SELECT place, found.level, array_agg(found.posting) FROM (
                SELECT c.posting, CASE
                    WHEN c.repeated IS NULL THEN 1
                    WHEN oftener = ANY (c.repeated) THEN 3
                    WHEN twice = ANY (c.repeated) THEN 2
                    ELSE 1
                END AS level
                FROM chunk_{part} AS c
                WHERE (c.tenant = here) IS TRUE AND c.ended_commit IS NULL AND c.tokens @> ARRAY[token]
            ) AS found
            GROUP BY found.level;
    END LOOP;
END $$;
