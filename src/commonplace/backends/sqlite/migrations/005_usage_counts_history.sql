-- What a namespace holds counts its former states too: a limit on it bounds the file, and every change adds a state.
-- Each counts with 200 bytes besides what it holds, for its row and its places in five orders.
ALTER TABLE usage ADD COLUMN former_states INTEGER NOT NULL DEFAULT 0;
ALTER TABLE usage ADD COLUMN former_bytes INTEGER NOT NULL DEFAULT 0;
INSERT INTO usage (namespace, entries, bytes, former_states, former_bytes)
    SELECT namespace, 0, 0, count(*),
        sum(200 + octet_length(value) + coalesce(octet_length(text), 0) + octet_length(attributes))
    FROM history WHERE true GROUP BY namespace
    ON CONFLICT (namespace) DO UPDATE SET former_states = excluded.former_states, former_bytes = excluded.former_bytes;

DROP TRIGGER usage_insert;
CREATE TRIGGER usage_insert AFTER INSERT ON entry BEGIN
    INSERT INTO usage (namespace, entries, bytes) VALUES (
        NEW.namespace, 1,
        octet_length(NEW.value) + coalesce(octet_length(NEW.text), 0) + octet_length(NEW.attributes)
    )
    ON CONFLICT (namespace) DO UPDATE SET entries = entries + 1, bytes = bytes + excluded.bytes;
END;

CREATE TRIGGER former_usage_insert AFTER INSERT ON history BEGIN
    INSERT INTO usage (namespace, entries, bytes, former_states, former_bytes) VALUES (
        NEW.namespace, 0, 0, 1,
        200 + octet_length(NEW.value) + coalesce(octet_length(NEW.text), 0) + octet_length(NEW.attributes)
    )
    ON CONFLICT (namespace) DO UPDATE
        SET former_states = former_states + 1, former_bytes = former_bytes + excluded.former_bytes;
END;

CREATE TRIGGER former_usage_delete AFTER DELETE ON history BEGIN
    UPDATE usage SET former_states = former_states - 1, former_bytes = former_bytes
        - 200 - octet_length(OLD.value) - coalesce(octet_length(OLD.text), 0) - octet_length(OLD.attributes)
    WHERE namespace = OLD.namespace;
END;

CREATE TRIGGER former_usage_update AFTER UPDATE OF value, text, attributes ON history BEGIN
    UPDATE usage SET former_bytes = former_bytes
        + octet_length(NEW.value) + coalesce(octet_length(NEW.text), 0) + octet_length(NEW.attributes)
        - octet_length(OLD.value) - coalesce(octet_length(OLD.text), 0) - octet_length(OLD.attributes)
    WHERE namespace = NEW.namespace;
END;
