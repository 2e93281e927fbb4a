-- Times are microseconds since 1970. Columns beside doc are computed from the
-- record at every write; doc is the record.
CREATE TABLE health_events (
    id               TEXT PRIMARY KEY,
    append_seq       INTEGER NOT NULL,
    insert_tx        INTEGER NOT NULL,
    stored_at        INTEGER NOT NULL,
    digest           TEXT NOT NULL,
    created_at       INTEGER NOT NULL,
    node             TEXT NOT NULL,
    agent            TEXT NOT NULL,
    strategy         TEXT NOT NULL,
    is_healthy       INTEGER NOT NULL,
    seq              TEXT NOT NULL,
    seq_epoch        TEXT NOT NULL,
    change_tx        INTEGER NOT NULL,
    change_seq       INTEGER NOT NULL,
    changed_at       INTEGER NOT NULL,
    revision         INTEGER NOT NULL,
    session          TEXT NOT NULL,
    node_quarantined TEXT NOT NULL,
    eviction         TEXT NOT NULL,
    verdict          TEXT NOT NULL,
    remediated       TEXT NOT NULL,
    is_repaired      INTEGER NOT NULL,
    is_open          INTEGER NOT NULL,
    is_finished      INTEGER NOT NULL,
    expire_at        INTEGER,
    doc              TEXT NOT NULL
);
-- Reading and paging in append order; the order of events without a counter.
CREATE UNIQUE INDEX health_events_append ON health_events (append_seq);
-- Feeds that deliver a record once, when it is appended.
CREATE INDEX health_events_inserts ON health_events (insert_tx, append_seq);
-- Feeds that deliver a record again after each change.
CREATE INDEX health_events_changes ON health_events (change_tx, change_seq);
-- The window of a node's records.
CREATE INDEX health_events_node ON health_events (node, append_seq);
-- The open faults of a node, or of all nodes: few rows of many.
CREATE INDEX health_events_open ON health_events (node, append_seq) WHERE is_open;
-- What fault-quarantine still has to judge, of a node or of all.
CREATE INDEX health_events_backlog ON health_events (node, append_seq)
    WHERE strategy = 'PROCESS' AND verdict IN ('', 'Held');
-- The recoveries of a node: a fault that arrives late is compared with them.
CREATE INDEX health_events_recoveries ON health_events (node, append_seq)
    WHERE strategy = 'PROCESS' AND is_healthy;
-- The records of one stay in quarantine.
CREATE INDEX health_events_session ON health_events (session, append_seq) WHERE session <> '';
-- A publisher's highest counter.
CREATE INDEX health_events_counter ON health_events (seq_epoch, seq) WHERE seq_epoch <> '';
-- Deleting what has expired.
CREATE INDEX health_events_expiry ON health_events (expire_at) WHERE expire_at IS NOT NULL;

-- How far each consumer has come; mark is when the last committed record was
-- stored, where a rescan begins if the position is lost.
CREATE TABLE feed_positions (
    consumer   TEXT PRIMARY KEY,
    position   TEXT NOT NULL,
    mark       INTEGER,
    updated_at INTEGER NOT NULL
);

-- What could not be processed, kept for a person.
CREATE TABLE dead_letters (
    source TEXT NOT NULL,
    id     TEXT NOT NULL,
    reason TEXT NOT NULL,
    body   BLOB,
    at     INTEGER NOT NULL,
    PRIMARY KEY (source, id)
);

-- One row. Every write transaction raises it, so that its order is the order
-- of the commits. history names the file; positions of another file are void.
CREATE TABLE store_counter (
    history TEXT NOT NULL,
    tx      INTEGER NOT NULL,
    seq     INTEGER NOT NULL
);
INSERT INTO store_counter (history, tx, seq) VALUES (lower(hex(randomblob(16))), 0, 0);
