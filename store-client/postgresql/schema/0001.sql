-- Columns beside doc are computed from the record at every write; doc is the
-- record. Transaction numbers are those of pg_current_xact_id.
CREATE SEQUENCE health_event_places AS BIGINT CACHE 1;

CREATE TABLE health_events (
    id               TEXT COLLATE "C" PRIMARY KEY,
    append_seq       BIGINT NOT NULL,
    insert_tx        BIGINT NOT NULL,
    stored_at        TIMESTAMPTZ NOT NULL,
    digest           TEXT NOT NULL,
    created_at       TIMESTAMPTZ NOT NULL,
    node             TEXT COLLATE "C" NOT NULL,
    agent            TEXT COLLATE "C" NOT NULL,
    strategy         TEXT COLLATE "C" NOT NULL,
    is_healthy       BOOLEAN NOT NULL,
    seq              TEXT COLLATE "C" NOT NULL,
    seq_epoch        TEXT COLLATE "C" NOT NULL,
    change_tx        BIGINT NOT NULL,
    change_seq       BIGINT NOT NULL,
    changed_at       TIMESTAMPTZ NOT NULL,
    revision         BIGINT NOT NULL,
    session          TEXT COLLATE "C" NOT NULL,
    node_quarantined TEXT COLLATE "C" NOT NULL,
    eviction         TEXT COLLATE "C" NOT NULL,
    verdict          TEXT COLLATE "C" NOT NULL,
    remediated       TEXT COLLATE "C" NOT NULL,
    is_repaired      BOOLEAN NOT NULL,
    is_open          BOOLEAN NOT NULL,
    is_finished      BOOLEAN NOT NULL,
    expire_at        TIMESTAMPTZ,
    doc              JSONB NOT NULL
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
    consumer   TEXT COLLATE "C" PRIMARY KEY,
    position   TEXT NOT NULL,
    mark       TIMESTAMPTZ,
    updated_at TIMESTAMPTZ NOT NULL
);

-- What could not be processed, kept for a person.
CREATE TABLE dead_letters (
    source TEXT COLLATE "C" NOT NULL,
    id     TEXT COLLATE "C" NOT NULL,
    reason TEXT NOT NULL,
    body   BYTEA,
    at     TIMESTAMPTZ NOT NULL,
    PRIMARY KEY (source, id)
);

-- One row: the server and database whose transaction numbers the rows bear.
CREATE TABLE store_home (home TEXT NOT NULL);
