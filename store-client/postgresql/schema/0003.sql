-- What cloud providers announce; doc is the document, the other columns are computed
-- from it at every write.
CREATE TABLE maintenance_events (
    csp         TEXT COLLATE "C" NOT NULL,
    event_id    TEXT COLLATE "C" NOT NULL,
    revision    BIGINT NOT NULL,
    node        TEXT COLLATE "C" NOT NULL,
    status      TEXT COLLATE "C" NOT NULL,
    is_finished BOOLEAN NOT NULL,
    expire_at   TIMESTAMPTZ,
    doc         JSONB NOT NULL,
    PRIMARY KEY (csp, event_id)
);
-- What is left to be done: few rows of many.
CREATE INDEX maintenance_events_unfinished ON maintenance_events (csp, event_id) WHERE NOT is_finished;
-- Deleting what has expired.
CREATE INDEX maintenance_events_expiry ON maintenance_events (expire_at) WHERE expire_at IS NOT NULL;

-- How far each provider has been read; written with the maintenances of the reading.
CREATE TABLE maintenance_providers (
    csp      TEXT COLLATE "C" PRIMARY KEY,
    revision BIGINT NOT NULL,
    doc      JSONB NOT NULL
);
