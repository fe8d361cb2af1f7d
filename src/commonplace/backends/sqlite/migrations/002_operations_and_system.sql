-- Operations that were done under a caller's own key, so that a repeated call is answered and not done again.
CREATE TABLE operation (
    namespace INTEGER NOT NULL,
    key TEXT NOT NULL,
    value TEXT NOT NULL,
    expires_at INTEGER NOT NULL,
    PRIMARY KEY (namespace, key)
) WITHOUT ROWID;
CREATE INDEX operation_expiry ON operation (namespace, expires_at);

-- What the program keeps beside the entries, such as the keys that callers show.
CREATE TABLE system (
    part TEXT NOT NULL,
    key TEXT NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (part, key)
) WITHOUT ROWID;

-- What a namespace holds live, for limits on it: kept by triggers, so that no way of writing can forget it.
CREATE TABLE usage (
    namespace INTEGER PRIMARY KEY,
    entries INTEGER NOT NULL,
    bytes INTEGER NOT NULL
);
INSERT INTO usage
    SELECT namespace, count(*), sum(octet_length(value) + coalesce(octet_length(text), 0) + octet_length(attributes))
    FROM entry GROUP BY namespace;

CREATE TRIGGER usage_insert AFTER INSERT ON entry BEGIN
    INSERT INTO usage VALUES (
        NEW.namespace, 1,
        octet_length(NEW.value) + coalesce(octet_length(NEW.text), 0) + octet_length(NEW.attributes)
    )
    ON CONFLICT DO UPDATE SET entries = entries + 1, bytes = bytes + excluded.bytes;
END;

CREATE TRIGGER usage_delete AFTER DELETE ON entry BEGIN
    UPDATE usage SET entries = entries - 1, bytes = bytes
        - octet_length(OLD.value) - coalesce(octet_length(OLD.text), 0) - octet_length(OLD.attributes)
    WHERE namespace = OLD.namespace;
END;

CREATE TRIGGER usage_update AFTER UPDATE OF value, text, attributes ON entry BEGIN
    UPDATE usage SET bytes = bytes
        + octet_length(NEW.value) + coalesce(octet_length(NEW.text), 0) + octet_length(NEW.attributes)
        - octet_length(OLD.value) - coalesce(octet_length(OLD.text), 0) - octet_length(OLD.attributes)
    WHERE namespace = NEW.namespace;
END;
