-- What cloud providers announce; doc is the document, the other columns are computed
-- from it at every write.
CREATE TABLE maintenance_events (
    csp         TEXT NOT NULL,
    event_id    TEXT NOT NULL,
    revision    INTEGER NOT NULL,
    node        TEXT NOT NULL,
    status      TEXT NOT NULL,
    is_finished INTEGER NOT NULL,
    expire_at   INTEGER,
    doc         TEXT NOT NULL,
    PRIMARY KEY (csp, event_id)
);
-- What is left to be done: few rows of many.
CREATE INDEX maintenance_events_unfinished ON maintenance_events (csp, event_id) WHERE NOT is_finished;
-- Deleting what has expired.
CREATE INDEX maintenance_events_expiry ON maintenance_events (expire_at) WHERE expire_at IS NOT NULL;

-- How far each provider has been read; written with the maintenances of the reading.
CREATE TABLE maintenance_providers (
    csp      TEXT PRIMARY KEY,
    revision INTEGER NOT NULL,
    doc      TEXT NOT NULL
);
