-- The store in an SQLite file. Times are microseconds since 1970, UTC.

-- What the log comes to: small, and derived. Payload, wait, result and error stay in their events; `enqueued`,
-- `wait`, `result` and `error` are the versions to find them at. Only lease end and renewals stand nowhere else.
CREATE TABLE jobs (
    n                   INTEGER PRIMARY KEY,  -- by which the events know their job: shorter than its id
    id                  TEXT    NOT NULL UNIQUE,
    created_at          INTEGER NOT NULL,
    updated_at          INTEGER NOT NULL,
    ended_at            INTEGER,
    due                 INTEGER,
    until               INTEGER,          -- the end of the lease, or of the last one
    lease               INTEGER NOT NULL, -- how long a lease is, by the job's policy
    deadline            INTEGER,          -- of the wait
    cancel_requested_at INTEGER,
    version             INTEGER NOT NULL,
    renewals            INTEGER NOT NULL,
    attempt             INTEGER NOT NULL,
    failures            INTEGER NOT NULL,
    enqueued            INTEGER,
    wait                INTEGER,
    result              INTEGER,
    error               INTEGER,
    state               TEXT    NOT NULL,
    priority            INTEGER NOT NULL,
    head                BLOB    NOT NULL,
    tenant              TEXT    NOT NULL,
    kind                TEXT    NOT NULL,
    queue               TEXT    NOT NULL,
    key                 TEXT,
    correlation_id      TEXT,
    owner               TEXT,
    token               TEXT,             -- the digest; nobody but the owner has the token
    renewed_by          TEXT,             -- the request_id of the last renewal, and what it asked
    renewed_hash        TEXT,
    CONSTRAINT token CHECK ((token IS NULL) = (owner IS NULL)),
    CONSTRAINT state CHECK (state IN (
        -- rendered from the lifecycle: states
        'inbox', 'queued', 'retrying', 'claimed', 'running', 'waiting', 'parked', 'stalled', 'succeeded', 'failed', 'cancelled', 'dead_lettered'
        -- end
    )),
    -- rendered from the lifecycle: shapes
    CONSTRAINT due_by_state CHECK ((due IS NOT NULL) = (state IN ('queued', 'retrying'))),
    CONSTRAINT lease_by_state CHECK ((owner IS NOT NULL) = (state IN ('claimed', 'running'))),
    CONSTRAINT wait_by_state CHECK ((wait IS NOT NULL) = (state IN ('waiting', 'parked'))),
    CONSTRAINT result_by_state CHECK ((result IS NOT NULL) = (state IN ('succeeded'))),
    CONSTRAINT error_by_state CHECK ((error IS NOT NULL) = (state IN ('retrying', 'failed', 'dead_lettered'))),
    CONSTRAINT ended_by_state CHECK ((ended_at IS NOT NULL) = (state IN ('succeeded', 'failed', 'cancelled', 'dead_lettered')))
    -- end
) STRICT;

CREATE INDEX jobs_claimable ON jobs (queue, priority DESC, due, id) WHERE due IS NOT NULL;
CREATE INDEX jobs_leased ON jobs (token) WHERE token IS NOT NULL;
CREATE INDEX jobs_deadline ON jobs (deadline) WHERE deadline IS NOT NULL;
CREATE INDEX jobs_error ON jobs (id) WHERE error IS NOT NULL;
CREATE INDEX jobs_wait ON jobs (id) WHERE wait IS NOT NULL;
CREATE INDEX jobs_correlation ON jobs (correlation_id) WHERE correlation_id IS NOT NULL;
CREATE UNIQUE INDEX jobs_key ON jobs (tenant, kind, key) WHERE key IS NOT NULL AND ended_at IS NULL;

-- The truth: one row per event, in the order of writing. The hash chains each to the one before it of its job,
-- and the head stands in the job's row.
CREATE TABLE events (
    seq          INTEGER PRIMARY KEY AUTOINCREMENT,
    job          INTEGER NOT NULL REFERENCES jobs (n),
    version      INTEGER NOT NULL CHECK (version > 0),
    at           INTEGER NOT NULL,
    format       INTEGER NOT NULL,
    event        TEXT    NOT NULL,
    who          TEXT    NOT NULL,
    actor        TEXT    NOT NULL,
    request_id   TEXT,
    request_hash TEXT,
    data         TEXT    NOT NULL,
    hash         BLOB    NOT NULL,
    UNIQUE (job, version)
) STRICT;
CREATE UNIQUE INDEX events_request ON events (job, request_id) WHERE request_id IS NOT NULL;

-- How many jobs are where. A file has one writer at a time, so nobody waits for these rows.
CREATE TABLE counts (
    queue TEXT    NOT NULL,
    kind  TEXT    NOT NULL,
    state TEXT    NOT NULL,
    jobs  INTEGER NOT NULL,
    PRIMARY KEY (queue, kind, state)
) STRICT, WITHOUT ROWID;

CREATE TRIGGER jobs_counted_in AFTER INSERT ON jobs BEGIN
    INSERT INTO counts VALUES (NEW.queue, NEW.kind, NEW.state, 1) ON CONFLICT DO UPDATE SET jobs = jobs + 1;
END;
CREATE TRIGGER jobs_counted AFTER UPDATE OF queue, kind, state ON jobs
WHEN OLD.state <> NEW.state OR OLD.queue <> NEW.queue OR OLD.kind <> NEW.kind BEGIN
    UPDATE counts SET jobs = jobs - 1 WHERE queue = OLD.queue AND kind = OLD.kind AND state = OLD.state;
    INSERT INTO counts VALUES (NEW.queue, NEW.kind, NEW.state, 1) ON CONFLICT DO UPDATE SET jobs = jobs + 1;
END;
CREATE TRIGGER jobs_counted_out AFTER DELETE ON jobs BEGIN
    UPDATE counts SET jobs = jobs - 1 WHERE queue = OLD.queue AND kind = OLD.kind AND state = OLD.state;
END;

-- What was answered to requests that speak of no one job: enqueue and claim.
CREATE TABLE requests (
    tenant       TEXT    NOT NULL,
    request_id   TEXT    NOT NULL,
    request_hash TEXT    NOT NULL,
    at           INTEGER NOT NULL,
    response     TEXT    NOT NULL,
    PRIMARY KEY (tenant, request_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE queues (
    name      TEXT PRIMARY KEY,
    paused_at INTEGER,
    paused_by TEXT,
    reason    TEXT
) STRICT, WITHOUT ROWID;

-- The only way to change what is written: a transaction that says here who does it, and why. It is open no longer
-- than that transaction, which is the only one there can be.
CREATE TABLE maintenance (
    id     INTEGER PRIMARY KEY,
    at     INTEGER NOT NULL,
    actor  TEXT    NOT NULL,
    reason TEXT    NOT NULL,
    open   INTEGER NOT NULL
) STRICT;

CREATE TRIGGER events_stand BEFORE UPDATE ON events WHEN NOT EXISTS (SELECT 1 FROM maintenance WHERE open) BEGIN
    SELECT raise(ABORT, 'leftfold: update of events is refused: what is on the log stands');
END;
CREATE TRIGGER events_stay BEFORE DELETE ON events WHEN NOT EXISTS (SELECT 1 FROM maintenance WHERE open) BEGIN
    SELECT raise(ABORT, 'leftfold: delete of events is refused: what is on the log stands');
END;
CREATE TRIGGER events_are_new BEFORE INSERT ON events  -- INSERT OR REPLACE deletes without asking the trigger above
WHEN EXISTS (SELECT 1 FROM events WHERE job = NEW.job AND version = NEW.version)
  OR EXISTS (SELECT 1 FROM events WHERE seq = NEW.seq) BEGIN
    SELECT raise(ABORT, 'leftfold: replacement of events is refused: what is on the log stands');
END;
CREATE TRIGGER jobs_are_new BEFORE INSERT ON jobs
WHEN EXISTS (SELECT 1 FROM jobs WHERE id = NEW.id) OR EXISTS (SELECT 1 FROM jobs WHERE n = NEW.n) BEGIN
    SELECT raise(ABORT, 'leftfold: replacement of jobs is refused: a job with a log stays');
END;
CREATE TRIGGER jobs_keep_their_name BEFORE UPDATE OF n, id ON jobs WHEN OLD.n <> NEW.n OR OLD.id <> NEW.id BEGIN
    SELECT raise(ABORT, 'leftfold: update of jobs is refused: a job keeps its id');
END;
CREATE TRIGGER jobs_stay BEFORE DELETE ON jobs WHEN NOT EXISTS (SELECT 1 FROM maintenance WHERE open) BEGIN
    SELECT raise(ABORT, 'leftfold: delete of jobs is refused: a job with a log stays');
END;
CREATE TRIGGER jobs_final BEFORE UPDATE ON jobs WHEN OLD.state IN (
    -- rendered from the lifecycle: final
    'succeeded', 'cancelled'
    -- end
) AND NOT EXISTS (SELECT 1 FROM maintenance WHERE open) BEGIN
    SELECT raise(ABORT, 'leftfold: update of jobs is refused: a final job never changes');
END;
CREATE TRIGGER maintenance_stands BEFORE UPDATE ON maintenance WHEN NOT OLD.open BEGIN
    SELECT raise(ABORT, 'leftfold: update of maintenance is refused: what was done stands');
END;
CREATE TRIGGER maintenance_stays BEFORE DELETE ON maintenance BEGIN
    SELECT raise(ABORT, 'leftfold: delete of maintenance is refused: what was done stands');
END;
