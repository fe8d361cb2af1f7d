-- A book as the program of schema 6 wrote it, in two parts: two namespaces with files, records, threads, working
-- memories, history and vectors of 64 numbers, and one file that waits for its vector. `test_postgres_steps.py` brings
-- it to the present schema. The roles come first; they belong to the whole server.
SELECT pg_catalog.set_config('search_path', '', false);
SET check_function_bodies = false;
SET row_security = off;
CREATE SCHEMA commonplace;
ALTER SCHEMA commonplace OWNER TO commonplace_system;
CREATE FUNCTION commonplace.check_program(known bigint) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    AS $$
DECLARE
    present integer;
BEGIN
    SELECT max(number) INTO present FROM commonplace.migration;
    IF present > known THEN
        RAISE EXCEPTION USING ERRCODE = 'CP001', MESSAGE =
            format('a newer commonplace has upgraded it to schema %s, and this program knows up to %s', present, known);
    END IF;
END $$;
ALTER FUNCTION commonplace.check_program(known bigint) OWNER TO commonplace_system;
CREATE FUNCTION commonplace.json_normal(given json) RETURNS jsonb
    LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
    AS $$
BEGIN
    CASE json_typeof(given)
        WHEN 'number' THEN RETURN to_jsonb(json_number(given #>> '{}'));
        WHEN 'array' THEN RETURN coalesce(
            (SELECT jsonb_agg(json_normal(item) ORDER BY place)
             FROM json_array_elements(given) WITH ORDINALITY AS members (item, place)), '[]');
        WHEN 'object' THEN RETURN coalesce(
            (SELECT jsonb_object_agg(members.key, json_normal(members.value)) FROM json_each(given) AS members), '{}');
        ELSE RETURN given::jsonb;
    END CASE;
END $$;
ALTER FUNCTION commonplace.json_normal(given json) OWNER TO commonplace_system;
CREATE FUNCTION commonplace.json_number(written text) RETURNS numeric
    LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
    AS $_$
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
END $_$;
ALTER FUNCTION commonplace.json_number(written text) OWNER TO commonplace_system;
CREATE FUNCTION commonplace.now_micros() RETURNS bigint
    LANGUAGE sql PARALLEL SAFE
    RETURN ((EXTRACT(epoch FROM clock_timestamp()) * (1000000)::numeric))::bigint;
ALTER FUNCTION commonplace.now_micros() OWNER TO commonplace_system;
CREATE FUNCTION commonplace.number_vector() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('commonplace:vectors', NEW.namespace));
    NEW.sequence := nextval('commonplace.identifier');
    RETURN NEW;
END $$;
ALTER FUNCTION commonplace.number_vector() OWNER TO commonplace_system;
CREATE FUNCTION commonplace.packed_terms(tokens text[], repeated text[]) RETURNS bytea
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
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
ALTER FUNCTION commonplace.packed_terms(tokens text[], repeated text[]) OWNER TO commonplace_system;
CREATE FUNCTION commonplace.postings(wanted text[]) RETURNS TABLE(place bigint, level integer, numbers bigint[])
    LANGUAGE plpgsql STABLE STRICT
    AS $$
BEGIN
    RAISE EXCEPTION 'a newer commonplace has upgraded the database; restart this program with the newer version';
END $$;
ALTER FUNCTION commonplace.postings(wanted text[]) OWNER TO commonplace_system;
CREATE FUNCTION commonplace.postings_p0(namespace_id bigint, terms text[]) RETURNS bytea[]
    LANGUAGE plpgsql STABLE STRICT SECURITY DEFINER
    SET search_path TO 'commonplace', 'pg_temp'
    AS $$
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
                FROM chunk_p0 AS c
                WHERE (c.tenant = here) IS TRUE AND c.ended_commit IS NULL AND c.namespace + 0 = namespace_id
                    AND term_keys(c.namespace, coalesce(c.terms, packed_terms(c.tokens, c.repeated))) @> ARRAY[key]
            ) AS c
        ));
    END LOOP;
    RETURN found;
END $$;
ALTER FUNCTION commonplace.postings_p0(namespace_id bigint, terms text[]) OWNER TO commonplace_system;
CREATE FUNCTION commonplace.postings_p1(namespace_id bigint, terms text[]) RETURNS bytea[]
    LANGUAGE plpgsql STABLE STRICT SECURITY DEFINER
    SET search_path TO 'commonplace', 'pg_temp'
    AS $$
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
                FROM chunk_p1 AS c
                WHERE (c.tenant = here) IS TRUE AND c.ended_commit IS NULL AND c.namespace + 0 = namespace_id
                    AND term_keys(c.namespace, coalesce(c.terms, packed_terms(c.tokens, c.repeated))) @> ARRAY[key]
            ) AS c
        ));
    END LOOP;
    RETURN found;
END $$;
ALTER FUNCTION commonplace.postings_p1(namespace_id bigint, terms text[]) OWNER TO commonplace_system;
CREATE FUNCTION commonplace.term_keys(namespace bigint, terms bytea) RETURNS bigint[]
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
    SELECT array_agg((('x' || encode(substring(terms FROM place FOR 8), 'hex'))::bit(64)::bigint & -4)
        # (hashint8extended(namespace, 0) & -4))
    FROM generate_series(1, octet_length(terms), 8) AS place
$$;
ALTER FUNCTION commonplace.term_keys(namespace bigint, terms bytea) OWNER TO commonplace_system;
CREATE TABLE commonplace.attempt (
    tenant text NOT NULL COLLATE pg_catalog."C",
    id uuid NOT NULL,
    made_at bigint NOT NULL
)
PARTITION BY HASH (tenant);
ALTER TABLE ONLY commonplace.attempt FORCE ROW LEVEL SECURITY;
ALTER TABLE commonplace.attempt OWNER TO commonplace_system;
CREATE TABLE commonplace.attempt_p0 (
    tenant text CONSTRAINT attempt_tenant_not_null NOT NULL COLLATE pg_catalog."C",
    id uuid CONSTRAINT attempt_id_not_null NOT NULL,
    made_at bigint CONSTRAINT attempt_made_at_not_null NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='20000');
ALTER TABLE commonplace.attempt_p0 OWNER TO commonplace_system;
CREATE TABLE commonplace.attempt_p1 (
    tenant text CONSTRAINT attempt_tenant_not_null NOT NULL COLLATE pg_catalog."C",
    id uuid CONSTRAINT attempt_id_not_null NOT NULL,
    made_at bigint CONSTRAINT attempt_made_at_not_null NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='20000');
ALTER TABLE commonplace.attempt_p1 OWNER TO commonplace_system;
CREATE TABLE commonplace.chunk (
    tenant text NOT NULL COLLATE pg_catalog."C",
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
    tokens text[] COLLATE pg_catalog."C",
    repeated text[] COLLATE pg_catalog."C",
    terms bytea
)
PARTITION BY HASH (tenant);
ALTER TABLE ONLY commonplace.chunk FORCE ROW LEVEL SECURITY;
ALTER TABLE commonplace.chunk OWNER TO commonplace_system;
CREATE TABLE commonplace.chunk_p0 (
    tenant text CONSTRAINT chunk_tenant_not_null NOT NULL COLLATE pg_catalog."C",
    id bigint CONSTRAINT chunk_id_not_null NOT NULL,
    namespace bigint CONSTRAINT chunk_namespace_not_null NOT NULL,
    entry bigint CONSTRAINT chunk_entry_not_null NOT NULL,
    number integer CONSTRAINT chunk_number_not_null NOT NULL,
    start integer CONSTRAINT chunk_start_not_null NOT NULL,
    stop integer CONSTRAINT chunk_stop_not_null NOT NULL,
    length integer CONSTRAINT chunk_length_not_null NOT NULL,
    posting bigint CONSTRAINT chunk_posting_not_null NOT NULL,
    commit_number bigint CONSTRAINT chunk_commit_number_not_null NOT NULL,
    ended_commit bigint,
    tokens text[] COLLATE pg_catalog."C",
    repeated text[] COLLATE pg_catalog."C",
    terms bytea
)
WITH (autovacuum_vacuum_scale_factor='0.05', autovacuum_analyze_scale_factor='0.05');
ALTER TABLE ONLY commonplace.chunk_p0 FORCE ROW LEVEL SECURITY;
ALTER TABLE commonplace.chunk_p0 OWNER TO commonplace_system;
CREATE TABLE commonplace.chunk_p1 (
    tenant text CONSTRAINT chunk_tenant_not_null NOT NULL COLLATE pg_catalog."C",
    id bigint CONSTRAINT chunk_id_not_null NOT NULL,
    namespace bigint CONSTRAINT chunk_namespace_not_null NOT NULL,
    entry bigint CONSTRAINT chunk_entry_not_null NOT NULL,
    number integer CONSTRAINT chunk_number_not_null NOT NULL,
    start integer CONSTRAINT chunk_start_not_null NOT NULL,
    stop integer CONSTRAINT chunk_stop_not_null NOT NULL,
    length integer CONSTRAINT chunk_length_not_null NOT NULL,
    posting bigint CONSTRAINT chunk_posting_not_null NOT NULL,
    commit_number bigint CONSTRAINT chunk_commit_number_not_null NOT NULL,
    ended_commit bigint,
    tokens text[] COLLATE pg_catalog."C",
    repeated text[] COLLATE pg_catalog."C",
    terms bytea
)
WITH (autovacuum_vacuum_scale_factor='0.05', autovacuum_analyze_scale_factor='0.05');
ALTER TABLE ONLY commonplace.chunk_p1 FORCE ROW LEVEL SECURITY;
ALTER TABLE commonplace.chunk_p1 OWNER TO commonplace_system;
CREATE TABLE commonplace.embedding (
    tenant text NOT NULL COLLATE pg_catalog."C",
    namespace bigint NOT NULL,
    model bigint NOT NULL,
    chunk bigint NOT NULL,
    former boolean NOT NULL,
    value public.halfvec NOT NULL,
    sequence bigint NOT NULL
)
PARTITION BY HASH (tenant);
ALTER TABLE ONLY commonplace.embedding FORCE ROW LEVEL SECURITY;
ALTER TABLE commonplace.embedding OWNER TO commonplace_system;
CREATE TABLE commonplace.embedding_p0 (
    tenant text CONSTRAINT embedding_tenant_not_null NOT NULL COLLATE pg_catalog."C",
    namespace bigint CONSTRAINT embedding_namespace_not_null NOT NULL,
    model bigint CONSTRAINT embedding_model_not_null NOT NULL,
    chunk bigint CONSTRAINT embedding_chunk_not_null NOT NULL,
    former boolean CONSTRAINT embedding_former_not_null NOT NULL,
    value public.halfvec CONSTRAINT embedding_value_not_null NOT NULL,
    sequence bigint CONSTRAINT embedding_sequence_not_null NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0.05');
ALTER TABLE ONLY commonplace.embedding_p0 FORCE ROW LEVEL SECURITY;
ALTER TABLE commonplace.embedding_p0 OWNER TO commonplace_system;
CREATE TABLE commonplace.embedding_p1 (
    tenant text CONSTRAINT embedding_tenant_not_null NOT NULL COLLATE pg_catalog."C",
    namespace bigint CONSTRAINT embedding_namespace_not_null NOT NULL,
    model bigint CONSTRAINT embedding_model_not_null NOT NULL,
    chunk bigint CONSTRAINT embedding_chunk_not_null NOT NULL,
    former boolean CONSTRAINT embedding_former_not_null NOT NULL,
    value public.halfvec CONSTRAINT embedding_value_not_null NOT NULL,
    sequence bigint CONSTRAINT embedding_sequence_not_null NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0.05');
ALTER TABLE ONLY commonplace.embedding_p1 FORCE ROW LEVEL SECURITY;
ALTER TABLE commonplace.embedding_p1 OWNER TO commonplace_system;
CREATE TABLE commonplace.entry (
    tenant text NOT NULL COLLATE pg_catalog."C",
    id bigint NOT NULL,
    namespace bigint NOT NULL,
    kind text NOT NULL COLLATE pg_catalog."C",
    key text NOT NULL COLLATE pg_catalog."C",
    identity text COLLATE pg_catalog."C",
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
    value text NOT NULL
)
PARTITION BY HASH (tenant);
ALTER TABLE ONLY commonplace.entry FORCE ROW LEVEL SECURITY;
ALTER TABLE commonplace.entry OWNER TO commonplace_system;
CREATE TABLE commonplace.entry_p0 (
    tenant text CONSTRAINT entry_tenant_not_null NOT NULL COLLATE pg_catalog."C",
    id bigint CONSTRAINT entry_id_not_null NOT NULL,
    namespace bigint CONSTRAINT entry_namespace_not_null NOT NULL,
    kind text CONSTRAINT entry_kind_not_null NOT NULL COLLATE pg_catalog."C",
    key text CONSTRAINT entry_key_not_null NOT NULL COLLATE pg_catalog."C",
    identity text COLLATE pg_catalog."C",
    is_json boolean CONSTRAINT entry_is_json_not_null NOT NULL,
    attributes text CONSTRAINT entry_attributes_not_null NOT NULL,
    revision bigint CONSTRAINT entry_revision_not_null NOT NULL,
    commit_number bigint CONSTRAINT entry_commit_number_not_null NOT NULL,
    valid_from bigint CONSTRAINT entry_valid_from_not_null NOT NULL,
    begun_by text CONSTRAINT entry_begun_by_not_null NOT NULL,
    created_at bigint CONSTRAINT entry_created_at_not_null NOT NULL,
    updated_at bigint CONSTRAINT entry_updated_at_not_null NOT NULL,
    expires_at bigint,
    actor text,
    deltas integer CONSTRAINT entry_deltas_not_null NOT NULL,
    heading text,
    text text,
    value text CONSTRAINT entry_value_not_null NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0.05', autovacuum_analyze_scale_factor='0.05');
ALTER TABLE ONLY commonplace.entry_p0 FORCE ROW LEVEL SECURITY;
ALTER TABLE commonplace.entry_p0 OWNER TO commonplace_system;
CREATE TABLE commonplace.entry_p1 (
    tenant text CONSTRAINT entry_tenant_not_null NOT NULL COLLATE pg_catalog."C",
    id bigint CONSTRAINT entry_id_not_null NOT NULL,
    namespace bigint CONSTRAINT entry_namespace_not_null NOT NULL,
    kind text CONSTRAINT entry_kind_not_null NOT NULL COLLATE pg_catalog."C",
    key text CONSTRAINT entry_key_not_null NOT NULL COLLATE pg_catalog."C",
    identity text COLLATE pg_catalog."C",
    is_json boolean CONSTRAINT entry_is_json_not_null NOT NULL,
    attributes text CONSTRAINT entry_attributes_not_null NOT NULL,
    revision bigint CONSTRAINT entry_revision_not_null NOT NULL,
    commit_number bigint CONSTRAINT entry_commit_number_not_null NOT NULL,
    valid_from bigint CONSTRAINT entry_valid_from_not_null NOT NULL,
    begun_by text CONSTRAINT entry_begun_by_not_null NOT NULL,
    created_at bigint CONSTRAINT entry_created_at_not_null NOT NULL,
    updated_at bigint CONSTRAINT entry_updated_at_not_null NOT NULL,
    expires_at bigint,
    actor text,
    deltas integer CONSTRAINT entry_deltas_not_null NOT NULL,
    heading text,
    text text,
    value text CONSTRAINT entry_value_not_null NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0.05', autovacuum_analyze_scale_factor='0.05');
ALTER TABLE ONLY commonplace.entry_p1 FORCE ROW LEVEL SECURITY;
ALTER TABLE commonplace.entry_p1 OWNER TO commonplace_system;
CREATE TABLE commonplace.history (
    tenant text NOT NULL COLLATE pg_catalog."C",
    entry bigint NOT NULL,
    namespace bigint NOT NULL,
    kind text NOT NULL COLLATE pg_catalog."C",
    key text NOT NULL COLLATE pg_catalog."C",
    identity text COLLATE pg_catalog."C",
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
    value bytea NOT NULL
)
PARTITION BY HASH (tenant);
ALTER TABLE ONLY commonplace.history FORCE ROW LEVEL SECURITY;
ALTER TABLE commonplace.history OWNER TO commonplace_system;
CREATE TABLE commonplace.history_p0 (
    tenant text CONSTRAINT history_tenant_not_null NOT NULL COLLATE pg_catalog."C",
    entry bigint CONSTRAINT history_entry_not_null NOT NULL,
    namespace bigint CONSTRAINT history_namespace_not_null NOT NULL,
    kind text CONSTRAINT history_kind_not_null NOT NULL COLLATE pg_catalog."C",
    key text CONSTRAINT history_key_not_null NOT NULL COLLATE pg_catalog."C",
    identity text COLLATE pg_catalog."C",
    is_json boolean CONSTRAINT history_is_json_not_null NOT NULL,
    attributes text CONSTRAINT history_attributes_not_null NOT NULL,
    revision bigint CONSTRAINT history_revision_not_null NOT NULL,
    commit_number bigint CONSTRAINT history_commit_number_not_null NOT NULL,
    valid_from bigint CONSTRAINT history_valid_from_not_null NOT NULL,
    begun_by text CONSTRAINT history_begun_by_not_null NOT NULL,
    created_at bigint CONSTRAINT history_created_at_not_null NOT NULL,
    updated_at bigint CONSTRAINT history_updated_at_not_null NOT NULL,
    expires_at bigint,
    actor text,
    ended_commit bigint CONSTRAINT history_ended_commit_not_null NOT NULL,
    valid_to bigint CONSTRAINT history_valid_to_not_null NOT NULL,
    ended_by text CONSTRAINT history_ended_by_not_null NOT NULL,
    ended_actor text,
    heading text,
    text bytea,
    value bytea CONSTRAINT history_value_not_null NOT NULL
);
ALTER TABLE commonplace.history_p0 OWNER TO commonplace_system;
CREATE TABLE commonplace.history_p1 (
    tenant text CONSTRAINT history_tenant_not_null NOT NULL COLLATE pg_catalog."C",
    entry bigint CONSTRAINT history_entry_not_null NOT NULL,
    namespace bigint CONSTRAINT history_namespace_not_null NOT NULL,
    kind text CONSTRAINT history_kind_not_null NOT NULL COLLATE pg_catalog."C",
    key text CONSTRAINT history_key_not_null NOT NULL COLLATE pg_catalog."C",
    identity text COLLATE pg_catalog."C",
    is_json boolean CONSTRAINT history_is_json_not_null NOT NULL,
    attributes text CONSTRAINT history_attributes_not_null NOT NULL,
    revision bigint CONSTRAINT history_revision_not_null NOT NULL,
    commit_number bigint CONSTRAINT history_commit_number_not_null NOT NULL,
    valid_from bigint CONSTRAINT history_valid_from_not_null NOT NULL,
    begun_by text CONSTRAINT history_begun_by_not_null NOT NULL,
    created_at bigint CONSTRAINT history_created_at_not_null NOT NULL,
    updated_at bigint CONSTRAINT history_updated_at_not_null NOT NULL,
    expires_at bigint,
    actor text,
    ended_commit bigint CONSTRAINT history_ended_commit_not_null NOT NULL,
    valid_to bigint CONSTRAINT history_valid_to_not_null NOT NULL,
    ended_by text CONSTRAINT history_ended_by_not_null NOT NULL,
    ended_actor text,
    heading text,
    text bytea,
    value bytea CONSTRAINT history_value_not_null NOT NULL
);
ALTER TABLE commonplace.history_p1 OWNER TO commonplace_system;
CREATE SEQUENCE commonplace.identifier
    START WITH 1
    INCREMENT BY 32
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE commonplace.identifier OWNER TO commonplace_system;
CREATE TABLE commonplace.label (
    tenant text NOT NULL COLLATE pg_catalog."C",
    namespace bigint NOT NULL,
    name text NOT NULL COLLATE pg_catalog."C",
    value text NOT NULL COLLATE pg_catalog."C",
    entry bigint NOT NULL
)
PARTITION BY HASH (tenant);
ALTER TABLE ONLY commonplace.label FORCE ROW LEVEL SECURITY;
ALTER TABLE commonplace.label OWNER TO commonplace_system;
CREATE TABLE commonplace.label_p0 (
    tenant text CONSTRAINT label_tenant_not_null NOT NULL COLLATE pg_catalog."C",
    namespace bigint CONSTRAINT label_namespace_not_null NOT NULL,
    name text CONSTRAINT label_name_not_null NOT NULL COLLATE pg_catalog."C",
    value text CONSTRAINT label_value_not_null NOT NULL COLLATE pg_catalog."C",
    entry bigint CONSTRAINT label_entry_not_null NOT NULL
);
ALTER TABLE commonplace.label_p0 OWNER TO commonplace_system;
CREATE TABLE commonplace.label_p1 (
    tenant text CONSTRAINT label_tenant_not_null NOT NULL COLLATE pg_catalog."C",
    namespace bigint CONSTRAINT label_namespace_not_null NOT NULL,
    name text CONSTRAINT label_name_not_null NOT NULL COLLATE pg_catalog."C",
    value text CONSTRAINT label_value_not_null NOT NULL COLLATE pg_catalog."C",
    entry bigint CONSTRAINT label_entry_not_null NOT NULL
);
ALTER TABLE commonplace.label_p1 OWNER TO commonplace_system;
CREATE TABLE commonplace.migration (
    number integer NOT NULL
);
ALTER TABLE commonplace.migration OWNER TO commonplace_system;
CREATE TABLE commonplace.model (
    id bigint NOT NULL,
    identity text NOT NULL,
    dimensions integer NOT NULL,
    role text NOT NULL,
    CONSTRAINT model_role_check CHECK ((role = ANY (ARRAY['serving'::text, 'target'::text, 'retired'::text])))
);
ALTER TABLE commonplace.model OWNER TO commonplace_system;
ALTER TABLE commonplace.model ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME commonplace.model_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE commonplace.namespace (
    tenant text NOT NULL COLLATE pg_catalog."C",
    path text NOT NULL COLLATE pg_catalog."C",
    id bigint NOT NULL,
    commit_number bigint DEFAULT 0 NOT NULL,
    commit_time bigint DEFAULT 0 NOT NULL,
    history_floor bigint DEFAULT 0 NOT NULL,
    chunk_count bigint DEFAULT 0 NOT NULL,
    term_total bigint DEFAULT 0 NOT NULL,
    chunks_ended bigint DEFAULT 0 NOT NULL,
    entry_count bigint DEFAULT 0 NOT NULL,
    byte_count bigint DEFAULT 0 NOT NULL,
    expires_next bigint,
    former_states bigint DEFAULT 0 NOT NULL,
    former_bytes bigint DEFAULT 0 NOT NULL,
    former_commit bigint DEFAULT 0 NOT NULL
)
PARTITION BY HASH (tenant);
ALTER TABLE ONLY commonplace.namespace FORCE ROW LEVEL SECURITY;
ALTER TABLE commonplace.namespace OWNER TO commonplace_system;
CREATE TABLE commonplace.namespace_p0 (
    tenant text CONSTRAINT namespace_tenant_not_null NOT NULL COLLATE pg_catalog."C",
    path text CONSTRAINT namespace_path_not_null NOT NULL COLLATE pg_catalog."C",
    id bigint CONSTRAINT namespace_id_not_null NOT NULL,
    commit_number bigint DEFAULT 0 CONSTRAINT namespace_commit_number_not_null NOT NULL,
    commit_time bigint DEFAULT 0 CONSTRAINT namespace_commit_time_not_null NOT NULL,
    history_floor bigint DEFAULT 0 CONSTRAINT namespace_history_floor_not_null NOT NULL,
    chunk_count bigint DEFAULT 0 CONSTRAINT namespace_chunk_count_not_null NOT NULL,
    term_total bigint DEFAULT 0 CONSTRAINT namespace_term_total_not_null NOT NULL,
    chunks_ended bigint DEFAULT 0 CONSTRAINT namespace_chunks_ended_not_null NOT NULL,
    entry_count bigint DEFAULT 0 CONSTRAINT namespace_entry_count_not_null NOT NULL,
    byte_count bigint DEFAULT 0 CONSTRAINT namespace_byte_count_not_null NOT NULL,
    expires_next bigint,
    former_states bigint DEFAULT 0 CONSTRAINT namespace_former_states_not_null NOT NULL,
    former_bytes bigint DEFAULT 0 CONSTRAINT namespace_former_bytes_not_null NOT NULL,
    former_commit bigint DEFAULT 0 CONSTRAINT namespace_former_commit_not_null NOT NULL
)
WITH (fillfactor='70', autovacuum_vacuum_scale_factor='0.05');
ALTER TABLE ONLY commonplace.namespace_p0 FORCE ROW LEVEL SECURITY;
ALTER TABLE commonplace.namespace_p0 OWNER TO commonplace_system;
CREATE TABLE commonplace.namespace_p1 (
    tenant text CONSTRAINT namespace_tenant_not_null NOT NULL COLLATE pg_catalog."C",
    path text CONSTRAINT namespace_path_not_null NOT NULL COLLATE pg_catalog."C",
    id bigint CONSTRAINT namespace_id_not_null NOT NULL,
    commit_number bigint DEFAULT 0 CONSTRAINT namespace_commit_number_not_null NOT NULL,
    commit_time bigint DEFAULT 0 CONSTRAINT namespace_commit_time_not_null NOT NULL,
    history_floor bigint DEFAULT 0 CONSTRAINT namespace_history_floor_not_null NOT NULL,
    chunk_count bigint DEFAULT 0 CONSTRAINT namespace_chunk_count_not_null NOT NULL,
    term_total bigint DEFAULT 0 CONSTRAINT namespace_term_total_not_null NOT NULL,
    chunks_ended bigint DEFAULT 0 CONSTRAINT namespace_chunks_ended_not_null NOT NULL,
    entry_count bigint DEFAULT 0 CONSTRAINT namespace_entry_count_not_null NOT NULL,
    byte_count bigint DEFAULT 0 CONSTRAINT namespace_byte_count_not_null NOT NULL,
    expires_next bigint,
    former_states bigint DEFAULT 0 CONSTRAINT namespace_former_states_not_null NOT NULL,
    former_bytes bigint DEFAULT 0 CONSTRAINT namespace_former_bytes_not_null NOT NULL,
    former_commit bigint DEFAULT 0 CONSTRAINT namespace_former_commit_not_null NOT NULL
)
WITH (fillfactor='70', autovacuum_vacuum_scale_factor='0.05');
ALTER TABLE ONLY commonplace.namespace_p1 FORCE ROW LEVEL SECURITY;
ALTER TABLE commonplace.namespace_p1 OWNER TO commonplace_system;
CREATE TABLE commonplace.operation (
    tenant text NOT NULL COLLATE pg_catalog."C",
    namespace bigint NOT NULL,
    key text NOT NULL COLLATE pg_catalog."C",
    value text NOT NULL,
    expires_at bigint NOT NULL
)
PARTITION BY HASH (tenant);
ALTER TABLE ONLY commonplace.operation FORCE ROW LEVEL SECURITY;
ALTER TABLE commonplace.operation OWNER TO commonplace_system;
CREATE TABLE commonplace.operation_p0 (
    tenant text CONSTRAINT operation_tenant_not_null NOT NULL COLLATE pg_catalog."C",
    namespace bigint CONSTRAINT operation_namespace_not_null NOT NULL,
    key text CONSTRAINT operation_key_not_null NOT NULL COLLATE pg_catalog."C",
    value text CONSTRAINT operation_value_not_null NOT NULL,
    expires_at bigint CONSTRAINT operation_expires_at_not_null NOT NULL
);
ALTER TABLE commonplace.operation_p0 OWNER TO commonplace_system;
CREATE TABLE commonplace.operation_p1 (
    tenant text CONSTRAINT operation_tenant_not_null NOT NULL COLLATE pg_catalog."C",
    namespace bigint CONSTRAINT operation_namespace_not_null NOT NULL,
    key text CONSTRAINT operation_key_not_null NOT NULL COLLATE pg_catalog."C",
    value text CONSTRAINT operation_value_not_null NOT NULL,
    expires_at bigint CONSTRAINT operation_expires_at_not_null NOT NULL
);
ALTER TABLE commonplace.operation_p1 OWNER TO commonplace_system;
CREATE TABLE commonplace.pending (
    tenant text NOT NULL COLLATE pg_catalog."C",
    chunk bigint NOT NULL,
    namespace bigint NOT NULL,
    ready_at bigint DEFAULT 0 NOT NULL,
    attempts integer DEFAULT 0 NOT NULL
)
PARTITION BY HASH (tenant);
ALTER TABLE ONLY commonplace.pending FORCE ROW LEVEL SECURITY;
ALTER TABLE commonplace.pending OWNER TO commonplace_system;
CREATE TABLE commonplace.pending_p0 (
    tenant text CONSTRAINT pending_tenant_not_null NOT NULL COLLATE pg_catalog."C",
    chunk bigint CONSTRAINT pending_chunk_not_null NOT NULL,
    namespace bigint CONSTRAINT pending_namespace_not_null NOT NULL,
    ready_at bigint DEFAULT 0 CONSTRAINT pending_ready_at_not_null NOT NULL,
    attempts integer DEFAULT 0 CONSTRAINT pending_attempts_not_null NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='2000', autovacuum_analyze_threshold='2000');
ALTER TABLE ONLY commonplace.pending_p0 FORCE ROW LEVEL SECURITY;
ALTER TABLE commonplace.pending_p0 OWNER TO commonplace_system;
CREATE TABLE commonplace.pending_p1 (
    tenant text CONSTRAINT pending_tenant_not_null NOT NULL COLLATE pg_catalog."C",
    chunk bigint CONSTRAINT pending_chunk_not_null NOT NULL,
    namespace bigint CONSTRAINT pending_namespace_not_null NOT NULL,
    ready_at bigint DEFAULT 0 CONSTRAINT pending_ready_at_not_null NOT NULL,
    attempts integer DEFAULT 0 CONSTRAINT pending_attempts_not_null NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='2000', autovacuum_analyze_threshold='2000');
ALTER TABLE ONLY commonplace.pending_p1 FORCE ROW LEVEL SECURITY;
ALTER TABLE commonplace.pending_p1 OWNER TO commonplace_system;
CREATE TABLE commonplace.system (
    part text NOT NULL COLLATE pg_catalog."C",
    key text NOT NULL COLLATE pg_catalog."C",
    value text NOT NULL
);
ALTER TABLE commonplace.system OWNER TO commonplace_system;
ALTER TABLE ONLY commonplace.attempt ATTACH PARTITION commonplace.attempt_p0 FOR VALUES WITH (modulus 2, remainder 0);
ALTER TABLE ONLY commonplace.attempt ATTACH PARTITION commonplace.attempt_p1 FOR VALUES WITH (modulus 2, remainder 1);
ALTER TABLE ONLY commonplace.chunk ATTACH PARTITION commonplace.chunk_p0 FOR VALUES WITH (modulus 2, remainder 0);
ALTER TABLE ONLY commonplace.chunk ATTACH PARTITION commonplace.chunk_p1 FOR VALUES WITH (modulus 2, remainder 1);
ALTER TABLE ONLY commonplace.embedding ATTACH PARTITION commonplace.embedding_p0 FOR VALUES WITH (modulus 2, remainder 0);
ALTER TABLE ONLY commonplace.embedding ATTACH PARTITION commonplace.embedding_p1 FOR VALUES WITH (modulus 2, remainder 1);
ALTER TABLE ONLY commonplace.entry ATTACH PARTITION commonplace.entry_p0 FOR VALUES WITH (modulus 2, remainder 0);
ALTER TABLE ONLY commonplace.entry ATTACH PARTITION commonplace.entry_p1 FOR VALUES WITH (modulus 2, remainder 1);
ALTER TABLE ONLY commonplace.history ATTACH PARTITION commonplace.history_p0 FOR VALUES WITH (modulus 2, remainder 0);
ALTER TABLE ONLY commonplace.history ATTACH PARTITION commonplace.history_p1 FOR VALUES WITH (modulus 2, remainder 1);
ALTER TABLE ONLY commonplace.label ATTACH PARTITION commonplace.label_p0 FOR VALUES WITH (modulus 2, remainder 0);
ALTER TABLE ONLY commonplace.label ATTACH PARTITION commonplace.label_p1 FOR VALUES WITH (modulus 2, remainder 1);
ALTER TABLE ONLY commonplace.namespace ATTACH PARTITION commonplace.namespace_p0 FOR VALUES WITH (modulus 2, remainder 0);
ALTER TABLE ONLY commonplace.namespace ATTACH PARTITION commonplace.namespace_p1 FOR VALUES WITH (modulus 2, remainder 1);
ALTER TABLE ONLY commonplace.operation ATTACH PARTITION commonplace.operation_p0 FOR VALUES WITH (modulus 2, remainder 0);
ALTER TABLE ONLY commonplace.operation ATTACH PARTITION commonplace.operation_p1 FOR VALUES WITH (modulus 2, remainder 1);
ALTER TABLE ONLY commonplace.pending ATTACH PARTITION commonplace.pending_p0 FOR VALUES WITH (modulus 2, remainder 0);
ALTER TABLE ONLY commonplace.pending ATTACH PARTITION commonplace.pending_p1 FOR VALUES WITH (modulus 2, remainder 1);
INSERT INTO commonplace.attempt_p0 VALUES
	('user/bob', '18e93d04-2169-0a73-ee52-2db317358b78', 1795033014436079),
	('user/bob', '18e93d04-2198-92f7-437b-d941c4e015e4', 1795033014441040),
	('user/bob', '18e93d04-21e3-6001-6a19-7e6983dc6a88', 1795033014446610),
	('user/bob', '18e93d04-2236-9911-f930-e414e665cd29', 1795033014451987),
	('user/bob', '18e93d04-228b-4b67-6922-10e2eeacf1ff', 1795033014459784),
	('user/bob', '18e93d04-22fe-fb5e-57b8-a6f09c921d6a', 1795033014461464),
	('user/bob', '18e93d04-2318-3341-0232-7c9533cdf739', 1795033014470588),
	('user/bob', '18e93d04-23a3-1eb0-3f1e-817180ee59ef', 1795033014478755),
	('/', '18e93d04-2426-d239-fe17-7b6bfd8fa084', 1795033014498529),
	('/', '18e93d04-264b-d0e8-59fe-eee384a43a4d', 1795033014519000),
	('/', '18e93d04-268b-c123-ac1f-81c19dc93e8c', 1795033014532768),
	('user/bob', '18e93d04-2777-d461-5cb9-c8fe715d9bb4', 1795033014537080);
INSERT INTO commonplace.attempt_p1 VALUES
	('user/ana', '18e93d04-0e72-089f-cf70-362143c32949', 1795033014187988),
	('user/ana', '18e93d04-12eb-97e5-7ad3-6f531bbaec96', 1795033014250990),
	('user/ana', '18e93d04-168e-75ce-0459-9349c3ce186f', 1795033014275020),
	('user/ana', '18e93d04-182b-547e-c100-a38ac33d78a9', 1795033014290422),
	('user/ana', '18e93d04-18ed-1709-77c2-13365813e16d', 1795033014307672),
	('user/ana', '18e93d04-20cc-6ed7-ea9f-c9f114af87bb', 1795033014425245),
	('user/ana', '18e93d04-20f3-bfea-84d7-5e632951cd74', 1795033014431349),
	('user/ana', '18e93d04-214d-19a2-ba83-fdddcddb143b', 1795033014433144);
INSERT INTO commonplace.chunk_p0 VALUES
	('user/bob', 292, 257, 290, -1, 0, 0, 3, 18696, 1, NULL, NULL, NULL, '\x049ec9e5ad31672dedb465624291e405b7bd55c11b781b0d'),
	('user/bob', 291, 257, 290, 0, 0, 23, 4, 18634, 1, 2, NULL, NULL, NULL),
	('user/bob', 321, 257, 290, 0, 0, 45, 9, 20560, 2, NULL, NULL, NULL, '\x81b637d8fcd2c6d9b7bd55c11b781b0db8d31e852725afb1d78d1a3f3bcf22d5254bb97b57f12e15582967534d0f909db9776d7ddf459c9981c16d337a1b73151dabba21cdad4455'),
	('user/bob', 354, 257, 353, 0, 0, 18, 2, 22661, 3, 4, NULL, NULL, NULL),
	('user/bob', 355, 257, 353, -1, 0, 0, 3, 22728, 3, 4, NULL, NULL, NULL),
	('user/bob', 386, 257, 385, 0, 0, 27, 8, 24719, 5, NULL, NULL, NULL, '\x81b637d8fcd2c6d9218ae6b44966c8a9ba4788b226aa8dc1a9f74d1ec36ebde9a8196a36f4d736a56b86b273ff34fce13f79bb7b435b0531983bd614bb5afecd'),
	('user/bob', 387, 257, 385, -1, 0, 0, 4, 24778, 5, NULL, NULL, NULL, '\xedb465624291e405e23c79ed0952839938a81e87e79631e52d711642b726b045'),
	('user/bob', 418, 257, 417, 0, 0, 4, 1, 26752, 6, NULL, NULL, NULL, '\xce7611e7481e75f1'),
	('user/bob', 450, 257, 449, 0, 0, 21, 4, 28810, 7, NULL, NULL, NULL, '\x15eaa75240aed625961eb4369973175981b637d8fcd2c6d9b7bd55c11b781b0d'),
	('user/bob', 770, 257, 769, 0, 0, 38, 7, 49294, 9, NULL, NULL, NULL, '\xccc0e8da6b80e08df39592393ef0859db9776d7ddf459c993547cb112ac44899b0d51c58c8b9c1f5b63b99f6383ba711ea0890697a77af09'),
	('user/bob', 771, 257, 769, -1, 0, 0, 3, 49352, 9, NULL, NULL, NULL, '\xd527d87717235f9dedb465624291e405089001a35679a33d');
INSERT INTO commonplace.chunk_p1 VALUES
	('user/ana', 36, 1, 34, -1, 0, 0, 3, 2312, 1, NULL, NULL, NULL, '\x049ec9e5ad31672dedb465624291e405b7bd55c11b781b0d'),
	('user/ana', 35, 1, 34, 0, 0, 23, 4, 2250, 1, 2, NULL, NULL, NULL),
	('user/ana', 65, 1, 34, 0, 0, 45, 9, 4176, 2, NULL, NULL, NULL, '\x24d4b96f58da6d49b7bd55c11b781b0db8d31e852725afb1d78d1a3f3bcf22d5254bb97b57f12e15582967534d0f909db9776d7ddf459c9981c16d337a1b73151dabba21cdad4455'),
	('user/ana', 98, 1, 97, 0, 0, 18, 2, 6277, 3, 4, NULL, NULL, NULL),
	('user/ana', 99, 1, 97, -1, 0, 0, 3, 6344, 3, 4, NULL, NULL, NULL),
	('user/ana', 130, 1, 129, 0, 0, 27, 8, 8335, 5, NULL, NULL, NULL, '\x24d4b96f58da6d49218ae6b44966c8a9ba4788b226aa8dc1a9f74d1ec36ebde9a8196a36f4d736a56b86b273ff34fce13f79bb7b435b0531983bd614bb5afecd'),
	('user/ana', 131, 1, 129, -1, 0, 0, 4, 8394, 5, NULL, NULL, NULL, '\xedb465624291e405e23c79ed0952839938a81e87e79631e52d711642b726b045'),
	('user/ana', 162, 1, 161, 0, 0, 4, 1, 10368, 6, NULL, NULL, NULL, '\xce7611e7481e75f1'),
	('user/ana', 194, 1, 193, 0, 0, 21, 4, 12426, 7, NULL, NULL, NULL, '\x15eaa75240aed625961eb4369973175924d4b96f58da6d49b7bd55c11b781b0d');
INSERT INTO commonplace.embedding_p0 VALUES
	('user/bob', 257, 1, 321, false, '[0,0,0,0.3161621,0,0,0.3161621,0,0,0,0.3161621,0,0.6323242,0,0,0,0,0,0,0,0,0.3161621,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0.3161621,0,0,0,0,0,0,0.3161621,0,0,0,0,0,0,0,0,0,0,0,0]', 513),
	('user/bob', 257, 1, 386, false, '[0,0.40820312,0,0,0,0,0,0,0,0,0,0,0,0,0.40820312,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0.40820312,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0.40820312,0,0.40820312,0,0,0,0.40820312,0,0,0,0,0,0,0,0]', 545),
	('user/bob', 257, 1, 418, false, '[0,0,0,0,0,0,1,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0]', 577),
	('user/bob', 257, 1, 450, false, '[0,0,0.5,0,0,0,0,0,0,0,0,0,0.5,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0.5,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0.5,0,0,0,0,0,0,0,0,0,0,0,0]', 609);
INSERT INTO commonplace.embedding_p1 VALUES
	('user/ana', 1, 1, 65, false, '[0,0,0,0.3161621,0,0,0.3161621,0,0,0,0.3161621,0,0.6323242,0,0,0,0,0.3161621,0,0,0,0.3161621,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0.3161621,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0]', 641),
	('user/ana', 1, 1, 130, false, '[0,0.40820312,0,0,0,0,0,0,0,0,0,0,0,0,0.40820312,0,0,0.40820312,0,0,0,0,0,0,0,0,0,0,0,0,0.40820312,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0.40820312,0,0,0,0,0,0.40820312,0,0,0,0,0,0,0,0]', 673),
	('user/ana', 1, 1, 162, false, '[0,0,0,0,0,0,1,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0]', 705),
	('user/ana', 1, 1, 194, false, '[0,0,0.5,0,0,0,0,0,0,0,0,0,0.5,0,0,0,0,0.5,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0.5,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0]', 737);
INSERT INTO commonplace.entry_p0 VALUES
	('user/bob', 289, 257, 'directory', 'notes', NULL, true, '{}', 1, 1, 1750000002000000, 'created', 1750000002000000, 1750000002000000, NULL, 'tester', 0, NULL, '', '{}'),
	('user/bob', 290, 257, 'file', 'notesdeploys', NULL, false, '{"size":47,"lines":2}', 2, 2, 1750000003000000, 'updated', 1750000002000000, 1750000003000000, NULL, 'tester', 0, 'notes/deploys', NULL, 'bob deploys on Tuesdays
not in the holidays ✓'),
	('user/bob', 385, 257, 'record', 'r-1', 'ccf67d094e4aab0381144fce95cabaa06b5b8ed90487c665a638abbba029bdeb', true, '{"type":"note","source":"s","tags":["person:x"],"confidence":0.5}', 1, 5, 1750000004000002, 'created', 1750000004000002, 1750000004000002, NULL, 'tester', 0, 'note person:x', 'bob drinks green tea
1e+300', '{"text":"bob drinks green tea","n":1e+300}'),
	('user/bob', 449, 257, 'message', 't-101750000004000004000000000', 'm-1', true, '{"role":"user","resourceId":"bob","threadId":"t-1"}', 1, 7, 1750000004000004, 'created', 1750000004000004, 1750000004000004, NULL, 'tester', 0, NULL, 'when does bob deploy?', '{"role":"user","content":"when does bob deploy?"}'),
	('user/bob', 417, 257, 'thread', 't-1', NULL, true, '{"resourceId":"bob","title":"talk","metadata":{}}', 1, 6, 1750000004000003, 'created', 1750000004000003, 1750000004000004, NULL, 'tester', 0, NULL, 'talk', '{}'),
	('user/bob', 481, 257, 'working', 'resourcebob', NULL, true, '{"resourceId":"bob","threadId":null}', 1, 8, 1750000004000005, 'created', 1750000004000005, 1750000004000005, NULL, 'tester', 0, NULL, '', '{"name":"bob"}'),
	('user/bob', 769, 257, 'file', 'noteslate', NULL, false, '{"size":38,"lines":1}', 1, 9, 1750000004000006, 'created', 1750000004000006, 1750000004000006, NULL, NULL, 0, 'notes/late', NULL, 'written after the last vector was made');
INSERT INTO commonplace.entry_p1 VALUES
	('user/ana', 33, 1, 'directory', 'notes', NULL, true, '{}', 1, 1, 1750000000000000, 'created', 1750000000000000, 1750000000000000, NULL, 'tester', 0, NULL, '', '{}'),
	('user/ana', 34, 1, 'file', 'notesdeploys', NULL, false, '{"size":47,"lines":2}', 2, 2, 1750000001000000, 'updated', 1750000000000000, 1750000001000000, NULL, 'tester', 0, 'notes/deploys', NULL, 'ana deploys on Tuesdays
not in the holidays ✓'),
	('user/ana', 129, 1, 'record', 'r-1', 'c87292fc75b5d5df79dfb70ca8e095c6049e30d686a4b2a0b071d4e87365004f', true, '{"type":"note","source":"s","tags":["person:x"],"confidence":0.5}', 1, 5, 1750000002000002, 'created', 1750000002000002, 1750000002000002, NULL, 'tester', 0, 'note person:x', 'ana drinks green tea
1e+300', '{"text":"ana drinks green tea","n":1e+300}'),
	('user/ana', 193, 1, 'message', 't-101750000002000004000000000', 'm-1', true, '{"role":"user","resourceId":"ana","threadId":"t-1"}', 1, 7, 1750000002000004, 'created', 1750000002000004, 1750000002000004, NULL, 'tester', 0, NULL, 'when does ana deploy?', '{"role":"user","content":"when does ana deploy?"}'),
	('user/ana', 161, 1, 'thread', 't-1', NULL, true, '{"resourceId":"ana","title":"talk","metadata":{}}', 1, 6, 1750000002000003, 'created', 1750000002000003, 1750000002000004, NULL, 'tester', 0, NULL, 'talk', '{}'),
	('user/ana', 225, 1, 'working', 'resourceana', NULL, true, '{"resourceId":"ana","threadId":null}', 1, 8, 1750000002000005, 'created', 1750000002000005, 1750000002000005, NULL, 'tester', 0, NULL, '', '{"name":"ana"}');
INSERT INTO commonplace.history_p0 VALUES
	('user/bob', 290, 257, 'file', 'notesdeploys', NULL, false, '{"size":23,"lines":1}', 1, 1, 1750000002000000, 'created', 1750000002000000, 1750000002000000, NULL, 'tester', 2, 1750000003000000, 'updated', 'tester', 'notes/deploys', NULL, '\x6e3233'),
	('user/bob', 353, 257, 'file', 'notesgone', NULL, false, '{"size":18,"lines":1}', 1, 3, 1750000004000000, 'created', 1750000004000000, 1750000004000000, NULL, 'tester', 4, 1750000004000001, 'deleted', 'tester', 'notes/gone', NULL, '\x74726f6c6c6261636b20636865636b6c697374');
INSERT INTO commonplace.history_p1 VALUES
	('user/ana', 34, 1, 'file', 'notesdeploys', NULL, false, '{"size":23,"lines":1}', 1, 1, 1750000000000000, 'created', 1750000000000000, 1750000000000000, NULL, 'tester', 2, 1750000001000000, 'updated', 'tester', 'notes/deploys', NULL, '\x6e3233'),
	('user/ana', 97, 1, 'file', 'notesgone', NULL, false, '{"size":18,"lines":1}', 1, 3, 1750000002000000, 'created', 1750000002000000, 1750000002000000, NULL, 'tester', 4, 1750000002000001, 'deleted', 'tester', 'notes/gone', NULL, '\x74726f6c6c6261636b20636865636b6c697374');
INSERT INTO commonplace.label_p0 VALUES
	('user/bob', 257, 'tags', 'person:x', 385),
	('user/bob', 257, 'type', 'note', 385),
	('user/bob', 257, 'resourceId', 'bob', 417),
	('user/bob', 257, 'resourceId', 'bob', 449),
	('user/bob', 257, 'resourceId', 'bob', 481);
INSERT INTO commonplace.label_p1 VALUES
	('user/ana', 1, 'tags', 'person:x', 129),
	('user/ana', 1, 'type', 'note', 129),
	('user/ana', 1, 'resourceId', 'ana', 161),
	('user/ana', 1, 'resourceId', 'ana', 193),
	('user/ana', 1, 'resourceId', 'ana', 225);
INSERT INTO commonplace.migration VALUES
	(1),
	(2),
	(3),
	(4),
	(5),
	(6);
INSERT INTO commonplace.model OVERRIDING SYSTEM VALUE VALUES
	(1, 'words@1', 64, 'serving');
INSERT INTO commonplace.namespace_p0 VALUES
	('user/bob', 'user/bob', 257, 9, 1750000004000006, 0, 8, 39, 3, 7, 491, NULL, 2, 464, 9);
INSERT INTO commonplace.namespace_p1 VALUES
	('user/ana', 'user/ana', 1, 8, 1750000002000005, 0, 6, 29, 3, 6, 432, NULL, 2, 464, 8);
INSERT INTO commonplace.pending_p0 VALUES
	('user/bob', 770, 257, 0, 0);
SELECT pg_catalog.setval('commonplace.identifier', 769, true);
SELECT pg_catalog.setval('commonplace.model_id_seq', 1, true);
ALTER TABLE ONLY commonplace.attempt
    ADD CONSTRAINT attempt_pkey PRIMARY KEY (id, tenant);
ALTER TABLE ONLY commonplace.attempt_p0
    ADD CONSTRAINT attempt_p0_pkey PRIMARY KEY (id, tenant);
ALTER TABLE ONLY commonplace.attempt_p1
    ADD CONSTRAINT attempt_p1_pkey PRIMARY KEY (id, tenant);
ALTER TABLE ONLY commonplace.chunk
    ADD CONSTRAINT chunk_pkey PRIMARY KEY (tenant, namespace, id);
ALTER TABLE ONLY commonplace.chunk_p0
    ADD CONSTRAINT chunk_p0_pkey PRIMARY KEY (tenant, namespace, id);
ALTER TABLE ONLY commonplace.chunk_p1
    ADD CONSTRAINT chunk_p1_pkey PRIMARY KEY (tenant, namespace, id);
ALTER TABLE ONLY commonplace.embedding
    ADD CONSTRAINT embedding_pkey PRIMARY KEY (chunk, model, tenant);
ALTER TABLE ONLY commonplace.embedding_p0
    ADD CONSTRAINT embedding_p0_pkey PRIMARY KEY (chunk, model, tenant);
ALTER TABLE ONLY commonplace.embedding_p1
    ADD CONSTRAINT embedding_p1_pkey PRIMARY KEY (chunk, model, tenant);
ALTER TABLE ONLY commonplace.entry
    ADD CONSTRAINT entry_pkey PRIMARY KEY (tenant, id);
ALTER TABLE ONLY commonplace.entry_p0
    ADD CONSTRAINT entry_p0_pkey PRIMARY KEY (tenant, id);
ALTER TABLE ONLY commonplace.entry_p1
    ADD CONSTRAINT entry_p1_pkey PRIMARY KEY (tenant, id);
ALTER TABLE ONLY commonplace.history
    ADD CONSTRAINT history_pkey PRIMARY KEY (tenant, entry, revision);
ALTER TABLE ONLY commonplace.history_p0
    ADD CONSTRAINT history_p0_pkey PRIMARY KEY (tenant, entry, revision);
ALTER TABLE ONLY commonplace.history_p1
    ADD CONSTRAINT history_p1_pkey PRIMARY KEY (tenant, entry, revision);
ALTER TABLE ONLY commonplace.label
    ADD CONSTRAINT label_pkey PRIMARY KEY (namespace, name, value, entry, tenant);
ALTER TABLE ONLY commonplace.label_p0
    ADD CONSTRAINT label_p0_pkey PRIMARY KEY (namespace, name, value, entry, tenant);
ALTER TABLE ONLY commonplace.label_p1
    ADD CONSTRAINT label_p1_pkey PRIMARY KEY (namespace, name, value, entry, tenant);
ALTER TABLE ONLY commonplace.migration
    ADD CONSTRAINT migration_pkey PRIMARY KEY (number);
ALTER TABLE ONLY commonplace.model
    ADD CONSTRAINT model_identity_key UNIQUE (identity);
ALTER TABLE ONLY commonplace.model
    ADD CONSTRAINT model_pkey PRIMARY KEY (id);
ALTER TABLE ONLY commonplace.namespace
    ADD CONSTRAINT namespace_pkey PRIMARY KEY (tenant, path);
ALTER TABLE ONLY commonplace.namespace_p0
    ADD CONSTRAINT namespace_p0_pkey PRIMARY KEY (tenant, path);
ALTER TABLE ONLY commonplace.namespace_p1
    ADD CONSTRAINT namespace_p1_pkey PRIMARY KEY (tenant, path);
ALTER TABLE ONLY commonplace.operation
    ADD CONSTRAINT operation_pkey PRIMARY KEY (namespace, key, tenant);
ALTER TABLE ONLY commonplace.operation_p0
    ADD CONSTRAINT operation_p0_pkey PRIMARY KEY (namespace, key, tenant);
ALTER TABLE ONLY commonplace.operation_p1
    ADD CONSTRAINT operation_p1_pkey PRIMARY KEY (namespace, key, tenant);
ALTER TABLE ONLY commonplace.pending
    ADD CONSTRAINT pending_pkey PRIMARY KEY (chunk, tenant);
ALTER TABLE ONLY commonplace.pending_p0
    ADD CONSTRAINT pending_p0_pkey PRIMARY KEY (chunk, tenant);
ALTER TABLE ONLY commonplace.pending_p1
    ADD CONSTRAINT pending_p1_pkey PRIMARY KEY (chunk, tenant);
ALTER TABLE ONLY commonplace.system
    ADD CONSTRAINT system_pkey PRIMARY KEY (part, key);
CREATE INDEX attempt_age ON ONLY commonplace.attempt USING brin (made_at) WITH (pages_per_range='8', autosummarize='on');
CREATE INDEX attempt_p0_made_at_idx ON commonplace.attempt_p0 USING brin (made_at) WITH (pages_per_range='8', autosummarize='on');
CREATE INDEX attempt_p1_made_at_idx ON commonplace.attempt_p1 USING brin (made_at) WITH (pages_per_range='8', autosummarize='on');
CREATE INDEX chunk_ended ON ONLY commonplace.chunk USING btree (namespace, ended_commit) WHERE (ended_commit IS NOT NULL);
CREATE INDEX chunk_entry ON ONLY commonplace.chunk USING btree (entry, number);
CREATE INDEX chunk_p0_entry_number_idx ON commonplace.chunk_p0 USING btree (entry, number);
CREATE INDEX chunk_p0_namespace_ended_commit_idx ON commonplace.chunk_p0 USING btree (namespace, ended_commit) WHERE (ended_commit IS NOT NULL);
CREATE INDEX chunk_p1_entry_number_idx ON commonplace.chunk_p1 USING btree (entry, number);
CREATE INDEX chunk_p1_namespace_ended_commit_idx ON commonplace.chunk_p1 USING btree (namespace, ended_commit) WHERE (ended_commit IS NOT NULL);
CREATE INDEX embedding_sequence ON ONLY commonplace.embedding USING btree (namespace, model, sequence, chunk) WHERE (NOT former);
CREATE INDEX embedding_p0_namespace_model_sequence_chunk_idx ON commonplace.embedding_p0 USING btree (namespace, model, sequence, chunk) WHERE (NOT former);
CREATE INDEX embedding_p1_namespace_model_sequence_chunk_idx ON commonplace.embedding_p1 USING btree (namespace, model, sequence, chunk) WHERE (NOT former);
CREATE INDEX entry_commit ON ONLY commonplace.entry USING btree (namespace, commit_number);
CREATE INDEX entry_created ON ONLY commonplace.entry USING btree (namespace, kind COLLATE "POSIX", created_at, id);
CREATE INDEX entry_expiry ON ONLY commonplace.entry USING btree (namespace, expires_at) WHERE (expires_at IS NOT NULL);
CREATE UNIQUE INDEX entry_identity ON ONLY commonplace.entry USING btree (namespace, kind, identity, tenant) WHERE (identity IS NOT NULL);
CREATE UNIQUE INDEX entry_key ON ONLY commonplace.entry USING btree (namespace, kind, key, tenant);
CREATE INDEX entry_p0_namespace_commit_number_idx ON commonplace.entry_p0 USING btree (namespace, commit_number);
CREATE INDEX entry_p0_namespace_expires_at_idx ON commonplace.entry_p0 USING btree (namespace, expires_at) WHERE (expires_at IS NOT NULL);
CREATE INDEX entry_p0_namespace_kind_created_at_id_idx ON commonplace.entry_p0 USING btree (namespace, kind COLLATE "POSIX", created_at, id);
CREATE UNIQUE INDEX entry_p0_namespace_kind_identity_tenant_idx ON commonplace.entry_p0 USING btree (namespace, kind, identity, tenant) WHERE (identity IS NOT NULL);
CREATE UNIQUE INDEX entry_p0_namespace_kind_key_tenant_idx ON commonplace.entry_p0 USING btree (namespace, kind, key, tenant);
CREATE INDEX entry_updated ON ONLY commonplace.entry USING btree (namespace, kind COLLATE "POSIX", updated_at, id);
CREATE INDEX entry_p0_namespace_kind_updated_at_id_idx ON commonplace.entry_p0 USING btree (namespace, kind COLLATE "POSIX", updated_at, id);
CREATE INDEX entry_p1_namespace_commit_number_idx ON commonplace.entry_p1 USING btree (namespace, commit_number);
CREATE INDEX entry_p1_namespace_expires_at_idx ON commonplace.entry_p1 USING btree (namespace, expires_at) WHERE (expires_at IS NOT NULL);
CREATE INDEX entry_p1_namespace_kind_created_at_id_idx ON commonplace.entry_p1 USING btree (namespace, kind COLLATE "POSIX", created_at, id);
CREATE UNIQUE INDEX entry_p1_namespace_kind_identity_tenant_idx ON commonplace.entry_p1 USING btree (namespace, kind, identity, tenant) WHERE (identity IS NOT NULL);
CREATE UNIQUE INDEX entry_p1_namespace_kind_key_tenant_idx ON commonplace.entry_p1 USING btree (namespace, kind, key, tenant);
CREATE INDEX entry_p1_namespace_kind_updated_at_id_idx ON commonplace.entry_p1 USING btree (namespace, kind COLLATE "POSIX", updated_at, id);
CREATE INDEX history_begun ON ONLY commonplace.history USING btree (namespace, commit_number);
CREATE INDEX history_ended ON ONLY commonplace.history USING btree (namespace, ended_commit);
CREATE UNIQUE INDEX history_key ON ONLY commonplace.history USING btree (namespace, kind, key, revision, tenant);
CREATE INDEX history_p0_namespace_commit_number_idx ON commonplace.history_p0 USING btree (namespace, commit_number);
CREATE INDEX history_p0_namespace_ended_commit_idx ON commonplace.history_p0 USING btree (namespace, ended_commit);
CREATE UNIQUE INDEX history_p0_namespace_kind_key_revision_tenant_idx ON commonplace.history_p0 USING btree (namespace, kind, key, revision, tenant);
CREATE INDEX history_valid ON ONLY commonplace.history USING btree (namespace, valid_to);
CREATE INDEX history_p0_namespace_valid_to_idx ON commonplace.history_p0 USING btree (namespace, valid_to);
CREATE INDEX history_p1_namespace_commit_number_idx ON commonplace.history_p1 USING btree (namespace, commit_number);
CREATE INDEX history_p1_namespace_ended_commit_idx ON commonplace.history_p1 USING btree (namespace, ended_commit);
CREATE UNIQUE INDEX history_p1_namespace_kind_key_revision_tenant_idx ON commonplace.history_p1 USING btree (namespace, kind, key, revision, tenant);
CREATE INDEX history_p1_namespace_valid_to_idx ON commonplace.history_p1 USING btree (namespace, valid_to);
CREATE INDEX namespace_id ON ONLY commonplace.namespace USING btree (id);
CREATE INDEX namespace_p0_id_idx ON commonplace.namespace_p0 USING btree (id);
CREATE INDEX namespace_path ON ONLY commonplace.namespace USING btree (path);
CREATE INDEX namespace_p0_path_idx ON commonplace.namespace_p0 USING btree (path);
CREATE INDEX namespace_p1_id_idx ON commonplace.namespace_p1 USING btree (id);
CREATE INDEX namespace_p1_path_idx ON commonplace.namespace_p1 USING btree (path);
CREATE INDEX operation_expiry ON ONLY commonplace.operation USING btree (namespace, expires_at);
CREATE INDEX operation_p0_namespace_expires_at_idx ON commonplace.operation_p0 USING btree (namespace, expires_at);
CREATE INDEX operation_p1_namespace_expires_at_idx ON commonplace.operation_p1 USING btree (namespace, expires_at);
CREATE INDEX pending_namespace ON ONLY commonplace.pending USING btree (namespace, chunk);
CREATE INDEX pending_p0_namespace_chunk_idx ON commonplace.pending_p0 USING btree (namespace, chunk);
CREATE INDEX pending_p1_namespace_chunk_idx ON commonplace.pending_p1 USING btree (namespace, chunk);
ALTER INDEX commonplace.attempt_age ATTACH PARTITION commonplace.attempt_p0_made_at_idx;
ALTER INDEX commonplace.attempt_pkey ATTACH PARTITION commonplace.attempt_p0_pkey;
ALTER INDEX commonplace.attempt_age ATTACH PARTITION commonplace.attempt_p1_made_at_idx;
ALTER INDEX commonplace.attempt_pkey ATTACH PARTITION commonplace.attempt_p1_pkey;
ALTER INDEX commonplace.chunk_entry ATTACH PARTITION commonplace.chunk_p0_entry_number_idx;
ALTER INDEX commonplace.chunk_ended ATTACH PARTITION commonplace.chunk_p0_namespace_ended_commit_idx;
ALTER INDEX commonplace.chunk_pkey ATTACH PARTITION commonplace.chunk_p0_pkey;
ALTER INDEX commonplace.chunk_entry ATTACH PARTITION commonplace.chunk_p1_entry_number_idx;
ALTER INDEX commonplace.chunk_ended ATTACH PARTITION commonplace.chunk_p1_namespace_ended_commit_idx;
ALTER INDEX commonplace.chunk_pkey ATTACH PARTITION commonplace.chunk_p1_pkey;
ALTER INDEX commonplace.embedding_sequence ATTACH PARTITION commonplace.embedding_p0_namespace_model_sequence_chunk_idx;
ALTER INDEX commonplace.embedding_pkey ATTACH PARTITION commonplace.embedding_p0_pkey;
ALTER INDEX commonplace.embedding_sequence ATTACH PARTITION commonplace.embedding_p1_namespace_model_sequence_chunk_idx;
ALTER INDEX commonplace.embedding_pkey ATTACH PARTITION commonplace.embedding_p1_pkey;
ALTER INDEX commonplace.entry_commit ATTACH PARTITION commonplace.entry_p0_namespace_commit_number_idx;
ALTER INDEX commonplace.entry_expiry ATTACH PARTITION commonplace.entry_p0_namespace_expires_at_idx;
ALTER INDEX commonplace.entry_created ATTACH PARTITION commonplace.entry_p0_namespace_kind_created_at_id_idx;
ALTER INDEX commonplace.entry_identity ATTACH PARTITION commonplace.entry_p0_namespace_kind_identity_tenant_idx;
ALTER INDEX commonplace.entry_key ATTACH PARTITION commonplace.entry_p0_namespace_kind_key_tenant_idx;
ALTER INDEX commonplace.entry_updated ATTACH PARTITION commonplace.entry_p0_namespace_kind_updated_at_id_idx;
ALTER INDEX commonplace.entry_pkey ATTACH PARTITION commonplace.entry_p0_pkey;
ALTER INDEX commonplace.entry_commit ATTACH PARTITION commonplace.entry_p1_namespace_commit_number_idx;
ALTER INDEX commonplace.entry_expiry ATTACH PARTITION commonplace.entry_p1_namespace_expires_at_idx;
ALTER INDEX commonplace.entry_created ATTACH PARTITION commonplace.entry_p1_namespace_kind_created_at_id_idx;
ALTER INDEX commonplace.entry_identity ATTACH PARTITION commonplace.entry_p1_namespace_kind_identity_tenant_idx;
ALTER INDEX commonplace.entry_key ATTACH PARTITION commonplace.entry_p1_namespace_kind_key_tenant_idx;
ALTER INDEX commonplace.entry_updated ATTACH PARTITION commonplace.entry_p1_namespace_kind_updated_at_id_idx;
ALTER INDEX commonplace.entry_pkey ATTACH PARTITION commonplace.entry_p1_pkey;
ALTER INDEX commonplace.history_begun ATTACH PARTITION commonplace.history_p0_namespace_commit_number_idx;
ALTER INDEX commonplace.history_ended ATTACH PARTITION commonplace.history_p0_namespace_ended_commit_idx;
ALTER INDEX commonplace.history_key ATTACH PARTITION commonplace.history_p0_namespace_kind_key_revision_tenant_idx;
ALTER INDEX commonplace.history_valid ATTACH PARTITION commonplace.history_p0_namespace_valid_to_idx;
ALTER INDEX commonplace.history_pkey ATTACH PARTITION commonplace.history_p0_pkey;
ALTER INDEX commonplace.history_begun ATTACH PARTITION commonplace.history_p1_namespace_commit_number_idx;
ALTER INDEX commonplace.history_ended ATTACH PARTITION commonplace.history_p1_namespace_ended_commit_idx;
ALTER INDEX commonplace.history_key ATTACH PARTITION commonplace.history_p1_namespace_kind_key_revision_tenant_idx;
ALTER INDEX commonplace.history_valid ATTACH PARTITION commonplace.history_p1_namespace_valid_to_idx;
ALTER INDEX commonplace.history_pkey ATTACH PARTITION commonplace.history_p1_pkey;
ALTER INDEX commonplace.label_pkey ATTACH PARTITION commonplace.label_p0_pkey;
ALTER INDEX commonplace.label_pkey ATTACH PARTITION commonplace.label_p1_pkey;
ALTER INDEX commonplace.namespace_id ATTACH PARTITION commonplace.namespace_p0_id_idx;
ALTER INDEX commonplace.namespace_path ATTACH PARTITION commonplace.namespace_p0_path_idx;
ALTER INDEX commonplace.namespace_pkey ATTACH PARTITION commonplace.namespace_p0_pkey;
ALTER INDEX commonplace.namespace_id ATTACH PARTITION commonplace.namespace_p1_id_idx;
ALTER INDEX commonplace.namespace_path ATTACH PARTITION commonplace.namespace_p1_path_idx;
ALTER INDEX commonplace.namespace_pkey ATTACH PARTITION commonplace.namespace_p1_pkey;
ALTER INDEX commonplace.operation_expiry ATTACH PARTITION commonplace.operation_p0_namespace_expires_at_idx;
ALTER INDEX commonplace.operation_pkey ATTACH PARTITION commonplace.operation_p0_pkey;
ALTER INDEX commonplace.operation_expiry ATTACH PARTITION commonplace.operation_p1_namespace_expires_at_idx;
ALTER INDEX commonplace.operation_pkey ATTACH PARTITION commonplace.operation_p1_pkey;
ALTER INDEX commonplace.pending_namespace ATTACH PARTITION commonplace.pending_p0_namespace_chunk_idx;
ALTER INDEX commonplace.pending_pkey ATTACH PARTITION commonplace.pending_p0_pkey;
ALTER INDEX commonplace.pending_namespace ATTACH PARTITION commonplace.pending_p1_namespace_chunk_idx;
ALTER INDEX commonplace.pending_pkey ATTACH PARTITION commonplace.pending_p1_pkey;
CREATE TRIGGER number_vector BEFORE INSERT ON commonplace.embedding FOR EACH ROW WHEN ((new.sequence IS NULL)) EXECUTE FUNCTION commonplace.number_vector();
ALTER TABLE commonplace.attempt ENABLE ROW LEVEL SECURITY;
ALTER TABLE commonplace.chunk ENABLE ROW LEVEL SECURITY;
ALTER TABLE commonplace.chunk_p0 ENABLE ROW LEVEL SECURITY;
ALTER TABLE commonplace.chunk_p1 ENABLE ROW LEVEL SECURITY;
ALTER TABLE commonplace.embedding ENABLE ROW LEVEL SECURITY;
ALTER TABLE commonplace.embedding_p0 ENABLE ROW LEVEL SECURITY;
ALTER TABLE commonplace.embedding_p1 ENABLE ROW LEVEL SECURITY;
ALTER TABLE commonplace.entry ENABLE ROW LEVEL SECURITY;
ALTER TABLE commonplace.entry_p0 ENABLE ROW LEVEL SECURITY;
ALTER TABLE commonplace.entry_p1 ENABLE ROW LEVEL SECURITY;
CREATE POLICY everything ON commonplace.attempt TO commonplace_system USING (true);
CREATE POLICY everything ON commonplace.chunk TO commonplace_system USING (true);
CREATE POLICY everything ON commonplace.chunk_p0 TO commonplace_system USING (true);
CREATE POLICY everything ON commonplace.chunk_p1 TO commonplace_system USING (true);
CREATE POLICY everything ON commonplace.embedding TO commonplace_system USING (true);
CREATE POLICY everything ON commonplace.embedding_p0 TO commonplace_system USING (true);
CREATE POLICY everything ON commonplace.embedding_p1 TO commonplace_system USING (true);
CREATE POLICY everything ON commonplace.entry TO commonplace_system USING (true);
CREATE POLICY everything ON commonplace.entry_p0 TO commonplace_system USING (true);
CREATE POLICY everything ON commonplace.entry_p1 TO commonplace_system USING (true);
CREATE POLICY everything ON commonplace.history TO commonplace_system USING (true);
CREATE POLICY everything ON commonplace.label TO commonplace_system USING (true);
CREATE POLICY everything ON commonplace.namespace TO commonplace_system USING (true);
CREATE POLICY everything ON commonplace.namespace_p0 TO commonplace_system USING (true);
CREATE POLICY everything ON commonplace.namespace_p1 TO commonplace_system USING (true);
CREATE POLICY everything ON commonplace.operation TO commonplace_system USING (true);
CREATE POLICY everything ON commonplace.pending TO commonplace_system USING (true);
CREATE POLICY everything ON commonplace.pending_p0 TO commonplace_system USING (true);
CREATE POLICY everything ON commonplace.pending_p1 TO commonplace_system USING (true);
ALTER TABLE commonplace.history ENABLE ROW LEVEL SECURITY;
ALTER TABLE commonplace.label ENABLE ROW LEVEL SECURITY;
ALTER TABLE commonplace.namespace ENABLE ROW LEVEL SECURITY;
ALTER TABLE commonplace.namespace_p0 ENABLE ROW LEVEL SECURITY;
ALTER TABLE commonplace.namespace_p1 ENABLE ROW LEVEL SECURITY;
ALTER TABLE commonplace.operation ENABLE ROW LEVEL SECURITY;
ALTER TABLE commonplace.pending ENABLE ROW LEVEL SECURITY;
ALTER TABLE commonplace.pending_p0 ENABLE ROW LEVEL SECURITY;
ALTER TABLE commonplace.pending_p1 ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenant ON commonplace.attempt TO commonplace_app USING ((tenant = current_setting('commonplace.tenant'::text, true)));
CREATE POLICY tenant ON commonplace.chunk TO commonplace_app USING ((tenant = current_setting('commonplace.tenant'::text, true)));
CREATE POLICY tenant ON commonplace.chunk_p0 TO commonplace_app USING ((tenant = current_setting('commonplace.tenant'::text, true)));
CREATE POLICY tenant ON commonplace.chunk_p1 TO commonplace_app USING ((tenant = current_setting('commonplace.tenant'::text, true)));
CREATE POLICY tenant ON commonplace.embedding TO commonplace_app USING ((tenant = current_setting('commonplace.tenant'::text, true)));
CREATE POLICY tenant ON commonplace.embedding_p0 TO commonplace_app USING ((tenant = current_setting('commonplace.tenant'::text, true)));
CREATE POLICY tenant ON commonplace.embedding_p1 TO commonplace_app USING ((tenant = current_setting('commonplace.tenant'::text, true)));
CREATE POLICY tenant ON commonplace.entry TO commonplace_app USING ((tenant = current_setting('commonplace.tenant'::text, true)));
CREATE POLICY tenant ON commonplace.entry_p0 TO commonplace_app USING ((tenant = current_setting('commonplace.tenant'::text, true)));
CREATE POLICY tenant ON commonplace.entry_p1 TO commonplace_app USING ((tenant = current_setting('commonplace.tenant'::text, true)));
CREATE POLICY tenant ON commonplace.history TO commonplace_app USING ((tenant = current_setting('commonplace.tenant'::text, true)));
CREATE POLICY tenant ON commonplace.label TO commonplace_app USING ((tenant = current_setting('commonplace.tenant'::text, true)));
CREATE POLICY tenant ON commonplace.namespace TO commonplace_app USING ((tenant = current_setting('commonplace.tenant'::text, true)));
CREATE POLICY tenant ON commonplace.namespace_p0 TO commonplace_app USING ((tenant = current_setting('commonplace.tenant'::text, true)));
CREATE POLICY tenant ON commonplace.namespace_p1 TO commonplace_app USING ((tenant = current_setting('commonplace.tenant'::text, true)));
CREATE POLICY tenant ON commonplace.operation TO commonplace_app USING ((tenant = current_setting('commonplace.tenant'::text, true)));
CREATE POLICY tenant ON commonplace.pending TO commonplace_app USING ((tenant = current_setting('commonplace.tenant'::text, true)));
CREATE POLICY tenant ON commonplace.pending_p0 TO commonplace_app USING ((tenant = current_setting('commonplace.tenant'::text, true)));
CREATE POLICY tenant ON commonplace.pending_p1 TO commonplace_app USING ((tenant = current_setting('commonplace.tenant'::text, true)));
GRANT USAGE ON SCHEMA commonplace TO commonplace_app;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE commonplace.attempt TO commonplace_app;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE commonplace.chunk TO commonplace_app;
GRANT SELECT ON TABLE commonplace.chunk_p0 TO commonplace_app;
GRANT SELECT ON TABLE commonplace.chunk_p1 TO commonplace_app;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE commonplace.embedding TO commonplace_app;
GRANT SELECT ON TABLE commonplace.embedding_p0 TO commonplace_app;
GRANT SELECT ON TABLE commonplace.embedding_p1 TO commonplace_app;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE commonplace.entry TO commonplace_app;
GRANT SELECT ON TABLE commonplace.entry_p0 TO commonplace_app;
GRANT SELECT ON TABLE commonplace.entry_p1 TO commonplace_app;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE commonplace.history TO commonplace_app;
GRANT USAGE ON SEQUENCE commonplace.identifier TO commonplace_app;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE commonplace.label TO commonplace_app;
GRANT SELECT ON TABLE commonplace.model TO commonplace_app;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE commonplace.namespace TO commonplace_app;
GRANT SELECT ON TABLE commonplace.namespace_p0 TO commonplace_app;
GRANT SELECT ON TABLE commonplace.namespace_p1 TO commonplace_app;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE commonplace.operation TO commonplace_app;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE commonplace.pending TO commonplace_app;
GRANT SELECT ON TABLE commonplace.pending_p0 TO commonplace_app;
GRANT SELECT ON TABLE commonplace.pending_p1 TO commonplace_app;
