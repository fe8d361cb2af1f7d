-- Servers keep what a search needs of a namespace in memory, and read what has changed since the commit that they know.
-- `chunk.terms` has the terms of a passage as hashes of 8 bytes, with the frequency level in the two lowest bits
-- (ranking.py). Passages written before have none: `packed_terms` makes them from the tokens.
ALTER TABLE chunk ADD COLUMN terms bytea;
CREATE INDEX chunk_live ON chunk (namespace, commit_number, id) WHERE ended_commit IS NULL;
CREATE INDEX chunk_ended ON chunk (namespace, ended_commit) WHERE ended_commit IS NOT NULL;

CREATE FUNCTION packed_terms(tokens text[], repeated text[]) RETURNS bytea LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT coalesce(string_agg(set_byte(hash, 7, (get_byte(hash, 7) & 252) | level), ''::bytea), ''::bytea)
    FROM (
        SELECT substring(sha256(convert_to(substr(token, strpos(token, ':') + 1), 'UTF8')) FROM 1 FOR 8) AS hash,
            CASE
                WHEN repeated @> ARRAY[token || E'\x03'] THEN 3
                WHEN repeated @> ARRAY[token || E'\x02'] THEN 2
                ELSE 1
            END AS level
        FROM unnest(tokens) AS token
    ) AS made
$$;

-- A vector's number, given once; those of a namespace are committed in the order of their numbers, because who stores
-- them locks the namespace's vectors first. Vectors stored before have 0 and come first, in the order of their passages:
-- to number them would write each again, with its place in every vector index.
ALTER TABLE embedding ADD COLUMN sequence bigint NOT NULL DEFAULT 0;
ALTER TABLE embedding ALTER COLUMN sequence DROP DEFAULT;
CREATE INDEX embedding_sequence ON embedding (namespace, model, sequence, chunk) WHERE NOT former;
DROP INDEX embedding_namespace;

-- Servers of schema 2 and 3 do not notice a newer schema, and store vectors without a number. Those are numbered here,
-- under the same lock.
CREATE FUNCTION number_vector() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('{schema}:vectors', NEW.namespace));
    NEW.sequence := nextval('{schema}.identifier');
    RETURN NEW;
END $$;
CREATE TRIGGER number_vector BEFORE INSERT ON embedding
FOR EACH ROW WHEN (NEW.sequence IS NULL) EXECUTE FUNCTION number_vector();
