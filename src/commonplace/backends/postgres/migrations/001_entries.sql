-- The whole schema. Run as the system role, which owns everything; the words in braces are filled in by migrate.py.
-- Every table with a tenant is divided by its hash: no query of one namespace looks at more than one part.

-- Ids of namespaces, entries and passages; a transaction takes 32 at once. None is ever used again.
CREATE SEQUENCE identifier INCREMENT BY {ids_at_once};

-- The time in whole microseconds since 1970: the database's own, the same for all servers.
CREATE FUNCTION now_micros() RETURNS bigint LANGUAGE sql VOLATILE PARALLEL SAFE
    RETURN (extract(epoch FROM clock_timestamp()) * 1000000)::bigint;

-- The namespace's row hands out its commit numbers and times: whoever writes locks it first. It holds the counts that
-- BM25 needs, what the namespace holds live, and a time before which nothing expires.
CREATE TABLE namespace (
    tenant text COLLATE "C" NOT NULL,
    path text COLLATE "C" NOT NULL,
    id bigint NOT NULL,
    commit_number bigint NOT NULL DEFAULT 0,
    commit_time bigint NOT NULL DEFAULT 0,
    history_floor bigint NOT NULL DEFAULT 0,
    chunk_count bigint NOT NULL DEFAULT 0,
    term_total bigint NOT NULL DEFAULT 0,
    chunks_ended bigint NOT NULL DEFAULT 0,
    entry_count bigint NOT NULL DEFAULT 0,
    byte_count bigint NOT NULL DEFAULT 0,
    expires_next bigint,
    PRIMARY KEY (tenant, path)
) PARTITION BY HASH (tenant);
CREATE INDEX namespace_id ON namespace (id);
CREATE INDEX namespace_path ON namespace (path);

-- Live states. `text` is NULL where search sees the value itself. Values are text and not jsonb, which would give back
-- another number than it was given (1e300 as an integer).
CREATE TABLE entry (
    tenant text COLLATE "C" NOT NULL,
    id bigint NOT NULL,
    namespace bigint NOT NULL,
    kind text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    identity text COLLATE "C",
    is_json boolean NOT NULL,
    attributes text NOT NULL,
    revision bigint NOT NULL,
    commit_number bigint NOT NULL,
    valid_from bigint NOT NULL,
    begun_by text NOT NULL,
    created_at bigint NOT NULL,
    updated_at bigint NOT NULL,
    expires_at bigint,
    actor text,
    deltas integer NOT NULL,
    heading text,
    text text,
    value text NOT NULL,
    PRIMARY KEY (tenant, id)
) PARTITION BY HASH (tenant);
CREATE UNIQUE INDEX entry_key ON entry (namespace, kind, key, tenant);
CREATE UNIQUE INDEX entry_identity ON entry (namespace, kind, identity, tenant) WHERE identity IS NOT NULL;
CREATE INDEX entry_created ON entry (namespace, created_at, id);
CREATE INDEX entry_updated ON entry (namespace, updated_at, id);
CREATE INDEX entry_commit ON entry (namespace, commit_number);
CREATE INDEX entry_expiry ON entry (namespace, expires_at) WHERE expires_at IS NOT NULL;

-- Former states: valid from `valid_from` until before `valid_to`. Texts are deltas to the next state (see kept.py).
CREATE TABLE history (
    tenant text COLLATE "C" NOT NULL,
    entry bigint NOT NULL,
    namespace bigint NOT NULL,
    kind text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    identity text COLLATE "C",
    is_json boolean NOT NULL,
    attributes text NOT NULL,
    revision bigint NOT NULL,
    commit_number bigint NOT NULL,
    valid_from bigint NOT NULL,
    begun_by text NOT NULL,
    created_at bigint NOT NULL,
    updated_at bigint NOT NULL,
    expires_at bigint,
    actor text,
    ended_commit bigint NOT NULL,
    valid_to bigint NOT NULL,
    ended_by text NOT NULL,
    ended_actor text,
    heading text,
    text bytea,
    value bytea NOT NULL,
    PRIMARY KEY (tenant, entry, revision)
) PARTITION BY HASH (tenant);
CREATE UNIQUE INDEX history_key ON history (namespace, kind, key, revision, tenant);
CREATE INDEX history_begun ON history (namespace, commit_number);
CREATE INDEX history_ended ON history (namespace, ended_commit);
CREATE INDEX history_valid ON history (namespace, valid_to);

-- The indexed attributes of live entries. A btree, since its operators are leakproof and row-level security lets them
-- search an index; those of a GIN index over arrays are not.
CREATE TABLE label (
    tenant text COLLATE "C" NOT NULL,
    namespace bigint NOT NULL,
    name text COLLATE "C" NOT NULL,
    value text COLLATE "C" NOT NULL,
    entry bigint NOT NULL,
    PRIMARY KEY (namespace, name, value, entry, tenant)
) PARTITION BY HASH (tenant);

-- Passages: characters `start` to `stop` of the entry's text; number -1 is its heading. Ended ones serve `as_of` and
-- have no tokens. A token is `namespace number in hexadecimal, colon, term`; those of terms that occur more than once
-- stand in `repeated` again, with a mark behind: U+0002 for twice, U+0003 for more often.
CREATE TABLE chunk (
    tenant text COLLATE "C" NOT NULL,
    id bigint NOT NULL,
    namespace bigint NOT NULL,
    entry bigint NOT NULL,
    number integer NOT NULL,
    start integer NOT NULL,
    stop integer NOT NULL,
    length integer NOT NULL,
    posting bigint NOT NULL,
    commit_number bigint NOT NULL,
    ended_commit bigint,
    tokens text[] COLLATE "C",
    repeated text[] COLLATE "C",
    PRIMARY KEY (tenant, id)
) PARTITION BY HASH (tenant);
CREATE INDEX chunk_entry ON chunk (entry, number);
CREATE INDEX chunk_tokens ON chunk USING gin (tokens) WITH (fastupdate = off) WHERE ended_commit IS NULL;

CREATE TABLE model (
    id bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    identity text NOT NULL UNIQUE,
    dimensions integer NOT NULL,
    role text NOT NULL CHECK (role IN ('serving', 'target', 'retired'))
);

-- Half-precision vectors; `former` ones belong to ended passages.
CREATE TABLE embedding (
    tenant text COLLATE "C" NOT NULL,
    namespace bigint NOT NULL,
    model bigint NOT NULL,
    chunk bigint NOT NULL,
    former boolean NOT NULL,
    value halfvec NOT NULL,
    PRIMARY KEY (chunk, model, tenant)
) PARTITION BY HASH (tenant);
CREATE INDEX embedding_namespace ON embedding (namespace, model) WHERE NOT former;

-- Live passages that wait for the target model's vector; nobody else takes one before `ready_at`.
CREATE TABLE pending (
    tenant text COLLATE "C" NOT NULL,
    chunk bigint NOT NULL,
    namespace bigint NOT NULL,
    ready_at bigint NOT NULL DEFAULT 0,
    attempts integer NOT NULL DEFAULT 0,
    PRIMARY KEY (chunk, tenant)
) PARTITION BY HASH (tenant);
CREATE INDEX pending_namespace ON pending (namespace, chunk);

-- Operations that were done under a caller's own key, so that a repeated call is answered and not done again.
CREATE TABLE operation (
    tenant text COLLATE "C" NOT NULL,
    namespace bigint NOT NULL,
    key text COLLATE "C" NOT NULL,
    value text NOT NULL,
    expires_at bigint NOT NULL,
    PRIMARY KEY (namespace, key, tenant)
) PARTITION BY HASH (tenant);
CREATE INDEX operation_expiry ON operation (namespace, expires_at);

-- One row for every transaction, written by itself: where the answer to COMMIT was lost, it tells whether it happened.
CREATE TABLE attempt (
    tenant text COLLATE "C" NOT NULL,
    id uuid NOT NULL,
    made_at bigint NOT NULL,
    PRIMARY KEY (id, tenant)
) PARTITION BY HASH (tenant);
CREATE INDEX attempt_age ON attempt (made_at);

-- What the program keeps beside the entries, such as the keys that callers show. The app role does not see it.
CREATE TABLE system (
    part text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    value text NOT NULL,
    PRIMARY KEY (part, key)
);

-- A JSON number as Python compares it: exactly, but integers beyond 64 bits as floating point numbers.
CREATE FUNCTION json_number(written text) RETURNS numeric LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE
    number numeric := written::numeric;
    floating double precision;
BEGIN
    IF abs(number) > 1.7976931348623157e308 THEN
        RETURN number;
    ELSIF written ~ '^-?[0-9]+$' AND number BETWEEN -9223372036854775808 AND 9223372036854775807 THEN
        RETURN number;
    END IF;
    floating := written::double precision;
    IF abs(floating) >= 9007199254740992 AND floating >= -9223372036854775808 AND floating < 9223372036854775808 THEN
        RETURN floating::bigint;
    END IF;
    RETURN floating::text::numeric;
END $$;

-- JSON with every number in that form, so that two values are equal when Python says so.
CREATE FUNCTION json_normal(given json) RETURNS jsonb LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
BEGIN
    CASE json_typeof(given)
        WHEN 'number' THEN RETURN to_jsonb(json_number(given #>> '{{}}'));
        WHEN 'array' THEN RETURN coalesce(
            (SELECT jsonb_agg(json_normal(item) ORDER BY place)
             FROM json_array_elements(given) WITH ORDINALITY AS members (item, place)), '[]');
        WHEN 'object' THEN RETURN coalesce(
            (SELECT jsonb_object_agg(members.key, json_normal(members.value)) FROM json_each(given) AS members), '{{}}');
        ELSE RETURN given::jsonb;
    END CASE;
END $$;

-- The postings of each token by frequency level, of the transaction's tenant only. It runs as the owner: under row-level
-- security a GIN index is not searched, because `@>` is not leakproof; so the tenant is asked for here.
CREATE FUNCTION postings(wanted text[]) RETURNS TABLE (place bigint, level integer, numbers bigint[])
LANGUAGE plpgsql STABLE STRICT SECURITY DEFINER SET search_path = {schema}, pg_temp AS $$
BEGIN
    RETURN QUERY
        SELECT token.place, found.level, array_agg(found.posting)
        FROM unnest(wanted) WITH ORDINALITY AS token (term, place), LATERAL (
            SELECT c.posting, CASE
                WHEN c.repeated IS NULL THEN 1
                WHEN c.repeated @> ARRAY[token.term || E'\x03'] THEN 3
                WHEN c.repeated @> ARRAY[token.term || E'\x02'] THEN 2
                ELSE 1
            END AS level
            FROM chunk AS c
            WHERE c.tenant = current_setting('commonplace.tenant', true) AND c.ended_commit IS NULL
                AND c.tokens @> ARRAY[token.term]
        ) AS found
        GROUP BY token.place, found.level;
END $$;
