-- The namespace's row hands out its commit numbers and times, and holds the counts that BM25 needs.
CREATE TABLE namespace (
    id INTEGER PRIMARY KEY,
    path TEXT NOT NULL UNIQUE,
    commit_number INTEGER NOT NULL,
    commit_time INTEGER NOT NULL,
    history_floor INTEGER NOT NULL,
    chunk_count INTEGER NOT NULL,
    term_total INTEGER NOT NULL,
    chunks_ended INTEGER NOT NULL
);

-- Ids are handed out from here, so that none is ever used again, not even after a purge.
CREATE TABLE counter (
    namespace INTEGER NOT NULL,
    entry INTEGER NOT NULL,
    chunk INTEGER NOT NULL,
    vector INTEGER NOT NULL
);
INSERT INTO counter VALUES (0, 0, 0, 0);

-- Live states. `text` is NULL where search sees the value itself.
CREATE TABLE entry (
    id INTEGER PRIMARY KEY,
    namespace INTEGER NOT NULL,
    kind TEXT NOT NULL,
    key TEXT NOT NULL,
    identity TEXT,
    is_json INTEGER NOT NULL,
    attributes TEXT NOT NULL,
    revision INTEGER NOT NULL,
    commit_number INTEGER NOT NULL,
    valid_from INTEGER NOT NULL,
    begun_by TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    expires_at INTEGER,
    actor TEXT,
    deltas INTEGER NOT NULL,
    heading TEXT,
    text TEXT,
    value TEXT NOT NULL
);
CREATE UNIQUE INDEX entry_key ON entry (namespace, kind, key);
CREATE UNIQUE INDEX entry_identity ON entry (namespace, kind, identity) WHERE identity IS NOT NULL;
CREATE INDEX entry_created ON entry (namespace, kind, created_at);
CREATE INDEX entry_updated ON entry (namespace, kind, updated_at);
CREATE INDEX entry_commit ON entry (namespace, commit_number);
CREATE INDEX entry_expiry ON entry (namespace, expires_at) WHERE expires_at IS NOT NULL;

-- Former states: valid from `valid_from` until before `valid_to`. Values are deltas to the next state (see deltas.py).
CREATE TABLE history (
    id INTEGER PRIMARY KEY,
    entry INTEGER NOT NULL,
    namespace INTEGER NOT NULL,
    kind TEXT NOT NULL,
    key TEXT NOT NULL,
    identity TEXT,
    is_json INTEGER NOT NULL,
    attributes TEXT NOT NULL,
    revision INTEGER NOT NULL,
    commit_number INTEGER NOT NULL,
    valid_from INTEGER NOT NULL,
    begun_by TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    expires_at INTEGER,
    actor TEXT,
    ended_commit INTEGER NOT NULL,
    valid_to INTEGER NOT NULL,
    ended_by TEXT NOT NULL,
    ended_actor TEXT,
    heading TEXT,
    text,
    value NOT NULL
);
CREATE UNIQUE INDEX history_key ON history (namespace, kind, key, revision);
CREATE UNIQUE INDEX history_entry ON history (entry, revision);
CREATE INDEX history_begun ON history (namespace, commit_number);
CREATE INDEX history_ended ON history (namespace, ended_commit);
CREATE INDEX history_valid ON history (namespace, valid_to);

-- The indexed attributes of live entries.
CREATE TABLE label (
    namespace INTEGER NOT NULL,
    name TEXT NOT NULL,
    value TEXT NOT NULL,
    entry INTEGER NOT NULL,
    PRIMARY KEY (namespace, name, value, entry)
) WITHOUT ROWID;

-- Passages: characters `start` to `stop` of the entry's text; number -1 is its heading. Ended ones serve `as_of`.
CREATE TABLE chunk (
    id INTEGER PRIMARY KEY,
    entry INTEGER NOT NULL,
    number INTEGER NOT NULL,
    start INTEGER NOT NULL,
    stop INTEGER NOT NULL,
    length INTEGER NOT NULL,
    commit_number INTEGER NOT NULL,
    ended_commit INTEGER
);
CREATE INDEX chunk_entry ON chunk (entry, ended_commit, number);

-- rowid = chunk id * 64 + length step; a term is `namespace number, U+E000, term, level mark`.
CREATE VIRTUAL TABLE keywords USING fts5 (
    terms, content = '', contentless_delete = 1, detail = none, tokenize = 'ascii'
);

-- Upkeep merges segments in pairs: each one less is a look-up less for every term of a search.
INSERT INTO keywords (keywords, rank) VALUES ('usermerge', 2);

CREATE TABLE model (
    id INTEGER PRIMARY KEY,
    identity TEXT NOT NULL UNIQUE,
    dimensions INTEGER NOT NULL,
    role TEXT NOT NULL CHECK (role IN ('serving', 'target', 'retired'))
);

-- Half-precision vectors. A process catches up by `sequence`; `former` ones belong to ended chunks.
CREATE TABLE vector (
    namespace INTEGER NOT NULL,
    model INTEGER NOT NULL,
    former INTEGER NOT NULL,
    sequence INTEGER NOT NULL,
    chunk INTEGER NOT NULL,
    value BLOB NOT NULL,
    PRIMARY KEY (namespace, model, former, sequence)
) WITHOUT ROWID;
CREATE UNIQUE INDEX vector_chunk ON vector (chunk, model);

-- Live chunks that wait for the target model's vector; nobody else takes one before `ready_at`.
CREATE TABLE pending (
    chunk INTEGER PRIMARY KEY,
    namespace INTEGER NOT NULL,
    ready_at INTEGER NOT NULL,
    attempts INTEGER NOT NULL
);
CREATE INDEX pending_namespace ON pending (namespace, chunk);
