-- The store in an SQLite file, which may hold other tables beside ours. Times are microseconds since 1970, UTC.

-- What the log comes to: small, and derived. Payload, wait, result and error stay in their events; `enqueued`,
-- `wait`, `result` and `error` are the versions to find them at. Only lease end and renewals stand nowhere else.
CREATE TABLE leftfold_jobs (
    n                   INTEGER PRIMARY KEY,  -- by which the events know their job: shorter than its id
    id                  BLOB    NOT NULL UNIQUE,
    created_at          INTEGER NOT NULL,
    updated_at          INTEGER NOT NULL,
    ended_at            INTEGER,
    due                 INTEGER,
    until               INTEGER,          -- the end of the lease, or of the last one
    lease               INTEGER,          -- how long a lease is, by the job's policy; null: the usual time
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
    incident            TEXT,             -- of a dead letter: which of them the same thing went wrong with
    resolved_at         INTEGER,          -- since when it is settled
    frozen_at           INTEGER,          -- its log or this row cannot be true: nobody touches it until that is settled
    CONSTRAINT incident CHECK (incident IS NULL OR (ended_at IS NOT NULL AND error IS NOT NULL)),
    CONSTRAINT resolved CHECK (resolved_at IS NULL OR ended_at IS NOT NULL),
    -- Which columns are there, as a number, and the number of each state. One for each column would cost six times as much.
    CONSTRAINT shape CHECK (
        -- rendered from the lifecycle: shape
        (due IS NOT NULL) + 2 * (owner IS NOT NULL) + 4 * (token IS NOT NULL) + 8 * (wait IS NOT NULL) + 16 * (result IS NOT NULL) + 32 * (error IS NOT NULL) + 64 * (ended_at IS NOT NULL)
        IS CASE state WHEN 'inbox' THEN 0 WHEN 'queued' THEN 1 WHEN 'retrying' THEN 33 WHEN 'claimed' THEN 6 WHEN 'running' THEN 6 WHEN 'waiting' THEN 8 WHEN 'parked' THEN 8 WHEN 'stalled' THEN 0 WHEN 'succeeded' THEN 80 WHEN 'failed' THEN 96 WHEN 'cancelled' THEN 64 WHEN 'dead_lettered' THEN 96 END
        -- end
    )
) STRICT;

CREATE INDEX leftfold_jobs_claimable ON leftfold_jobs (queue, priority DESC, due, id) WHERE due IS NOT NULL AND frozen_at IS NULL;
CREATE INDEX leftfold_jobs_leased ON leftfold_jobs (until) WHERE token IS NOT NULL;
CREATE INDEX leftfold_jobs_frozen ON leftfold_jobs (id) WHERE frozen_at IS NOT NULL;
CREATE INDEX leftfold_jobs_deadline ON leftfold_jobs (deadline) WHERE deadline IS NOT NULL;
CREATE INDEX leftfold_jobs_error ON leftfold_jobs (id) WHERE error IS NOT NULL;
CREATE INDEX leftfold_jobs_incident ON leftfold_jobs (incident, ended_at) WHERE incident IS NOT NULL;
CREATE INDEX leftfold_jobs_wait ON leftfold_jobs (id) WHERE wait IS NOT NULL;
CREATE INDEX leftfold_jobs_correlation ON leftfold_jobs (correlation_id) WHERE correlation_id IS NOT NULL;
CREATE UNIQUE INDEX leftfold_jobs_key ON leftfold_jobs (tenant, kind, key) WHERE key IS NOT NULL AND ended_at IS NULL;

-- The truth: one row per entry, in the order of writing: an event, or two that were said at once (`claimed+started`), and
-- then the version is that of the second. A hash chains each to the one before it of its job; the last one stands whole
-- in the job's row.
CREATE TABLE leftfold_events (
    seq          INTEGER PRIMARY KEY AUTOINCREMENT,
    job          INTEGER NOT NULL REFERENCES leftfold_jobs (n) DEFERRABLE INITIALLY DEFERRED,
    version      INTEGER NOT NULL CHECK (version > 0),
    at           INTEGER NOT NULL,
    format       INTEGER NOT NULL,
    event        INTEGER NOT NULL, -- the number of its name
    who          TEXT,             -- null: who usually says this event
    actor        INTEGER NOT NULL, -- the same
    request_id   TEXT,
    request_hash TEXT,
    data         TEXT    NOT NULL,
    seal         BLOB    NOT NULL, -- the beginning of its hash
    UNIQUE (job, version)
) STRICT;
CREATE UNIQUE INDEX leftfold_events_request ON leftfold_events (job, request_id) WHERE request_id IS NOT NULL;

-- What stands on every line of the log, written once: the names of events, and of those who say them.
CREATE TABLE leftfold_names (
    n    INTEGER PRIMARY KEY,
    name TEXT    NOT NULL UNIQUE
) STRICT;

-- The log as people read it, and our own queries. Without a join of its own: SQLite would write out the whole log for
-- every LEFT JOIN with it.
CREATE VIEW leftfold_log AS
SELECT e.seq, e.job, e.version, e.at, e.format, (SELECT name FROM leftfold_names WHERE n = e.event) AS event, e.who,
       (SELECT name FROM leftfold_names WHERE n = e.actor) AS actor, e.request_id, e.request_hash, e.data, e.seal
FROM leftfold_events e;

-- How many jobs are where. A file has one writer at a time, so nobody waits for these rows. Who makes a job counts it;
-- what becomes of it counts by itself.
CREATE TABLE leftfold_counts (
    queue TEXT    NOT NULL,
    kind  TEXT    NOT NULL,
    state TEXT    NOT NULL,
    jobs  INTEGER NOT NULL,
    PRIMARY KEY (queue, kind, state)
) STRICT, WITHOUT ROWID;

CREATE TRIGGER leftfold_jobs_counted AFTER UPDATE OF queue, kind, state ON leftfold_jobs
WHEN OLD.state <> NEW.state OR OLD.queue <> NEW.queue OR OLD.kind <> NEW.kind BEGIN
    UPDATE leftfold_counts SET jobs = jobs - 1 WHERE queue = OLD.queue AND kind = OLD.kind AND state = OLD.state;
    INSERT INTO leftfold_counts VALUES (NEW.queue, NEW.kind, NEW.state, 1) ON CONFLICT DO UPDATE SET jobs = jobs + 1;
END;
CREATE TRIGGER leftfold_jobs_counted_out AFTER DELETE ON leftfold_jobs BEGIN
    UPDATE leftfold_counts SET jobs = jobs - 1 WHERE queue = OLD.queue AND kind = OLD.kind AND state = OLD.state;
END;

-- What was answered to requests that speak of no one job: enqueue and claim.
CREATE TABLE leftfold_requests (
    tenant       TEXT    NOT NULL,
    request_id   TEXT    NOT NULL,
    request_hash TEXT    NOT NULL,
    at           INTEGER NOT NULL,
    response     TEXT    NOT NULL,
    PRIMARY KEY (tenant, request_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE leftfold_queues (
    name      TEXT PRIMARY KEY,
    paused_at INTEGER,
    paused_by TEXT,
    reason    TEXT
) STRICT, WITHOUT ROWID;

-- How far each consumer of the feed has come: it has all events whose number is smaller than that in `seen`.
CREATE TABLE leftfold_feeds (
    consumer   TEXT PRIMARY KEY,
    rev        INTEGER NOT NULL,
    seen       TEXT    NOT NULL,
    target     TEXT,
    at         INTEGER,
    job_id     TEXT,
    version    INTEGER,
    started_at INTEGER NOT NULL,
    moved_at   INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- The workers that live, or died without a word: who they are, and when each of their loops last ran.
CREATE TABLE leftfold_workers (
    name       TEXT PRIMARY KEY,
    started_at INTEGER NOT NULL,
    beat_at    INTEGER NOT NULL,
    told       TEXT    NOT NULL
) STRICT, WITHOUT ROWID;

-- The only way to change what is written: a transaction that says here who does it, and why. It is open no longer
-- than that transaction, which is the only one there can be.
CREATE TABLE leftfold_maintenance (
    id     INTEGER PRIMARY KEY,
    at     INTEGER NOT NULL,
    actor  TEXT    NOT NULL,
    reason TEXT    NOT NULL,
    open   INTEGER NOT NULL
) STRICT;

CREATE TRIGGER leftfold_events_stand BEFORE UPDATE ON leftfold_events WHEN NOT EXISTS (SELECT 1 FROM leftfold_maintenance WHERE open) BEGIN
    SELECT raise(ABORT, 'leftfold: update of events is refused: what is on the log stands');
END;
CREATE TRIGGER leftfold_events_stay BEFORE DELETE ON leftfold_events WHEN NOT EXISTS (SELECT 1 FROM leftfold_maintenance WHERE open) BEGIN
    SELECT raise(ABORT, 'leftfold: delete of events is refused: what is on the log stands');
END;
-- INSERT OR REPLACE and UPDATE OR REPLACE delete without asking the triggers above: whatever is unique is asked here. A
-- number that nobody gave is -1 here.
-- FAIL, not ABORT, where an insert is refused: it undoes nothing by itself, and so a statement may do without a copy of
-- every page that it writes to. The engine rolls back all of it. Of a statement by hand, the rows before the refused one stay.
CREATE TRIGGER leftfold_events_are_new BEFORE INSERT ON leftfold_events
WHEN EXISTS (SELECT 1 FROM leftfold_events WHERE job = NEW.job AND version = NEW.version)
  OR (NEW.request_id IS NOT NULL AND EXISTS (SELECT 1 FROM leftfold_events WHERE job = NEW.job AND request_id = NEW.request_id))
  OR (NEW.seq <> -1 AND EXISTS (SELECT 1 FROM leftfold_events WHERE seq = NEW.seq)) BEGIN
    SELECT raise(FAIL, 'leftfold: replacement of events is refused: what is on the log stands');
END;
CREATE TRIGGER leftfold_names_stand BEFORE UPDATE ON leftfold_names BEGIN
    SELECT raise(ABORT, 'leftfold: update of names is refused: what is on the log stands');
END;
CREATE TRIGGER leftfold_names_stay BEFORE DELETE ON leftfold_names BEGIN
    SELECT raise(ABORT, 'leftfold: delete of names is refused: what is on the log stands');
END;
CREATE TRIGGER leftfold_names_are_new BEFORE INSERT ON leftfold_names
WHEN EXISTS (SELECT 1 FROM leftfold_names WHERE n = NEW.n) BEGIN
    SELECT raise(ABORT, 'leftfold: replacement of names is refused: what is on the log stands');
END;
CREATE TRIGGER leftfold_jobs_are_new BEFORE INSERT ON leftfold_jobs
WHEN EXISTS (SELECT 1 FROM leftfold_jobs WHERE id = NEW.id) OR EXISTS (SELECT 1 FROM leftfold_jobs WHERE n = NEW.n) BEGIN
    SELECT raise(FAIL, 'leftfold: replacement of jobs is refused: a job with a log stays');
END;
CREATE TRIGGER leftfold_jobs_keep_their_keys BEFORE INSERT ON leftfold_jobs
WHEN NEW.key IS NOT NULL AND NEW.ended_at IS NULL AND EXISTS (
    SELECT 1 FROM leftfold_jobs
    WHERE tenant = NEW.tenant AND kind = NEW.kind AND key = NEW.key AND key IS NOT NULL AND ended_at IS NULL) BEGIN
    SELECT raise(IGNORE);  -- as ON CONFLICT DO NOTHING would
END;
CREATE TRIGGER leftfold_jobs_keep_to_their_keys BEFORE UPDATE OF tenant, kind, key, ended_at ON leftfold_jobs
WHEN NEW.key IS NOT NULL AND NEW.ended_at IS NULL AND EXISTS (
    SELECT 1 FROM leftfold_jobs
    WHERE tenant = NEW.tenant AND kind = NEW.kind AND key = NEW.key AND key IS NOT NULL AND ended_at IS NULL
      AND n <> NEW.n) BEGIN
    SELECT raise(ABORT, 'leftfold: update of jobs is refused: another live job holds the key');
END;
CREATE TRIGGER leftfold_jobs_keep_their_name BEFORE UPDATE OF n, id ON leftfold_jobs WHEN OLD.n <> NEW.n OR OLD.id <> NEW.id BEGIN
    SELECT raise(ABORT, 'leftfold: update of jobs is refused: a job keeps its id');
END;
CREATE TRIGGER leftfold_jobs_stay BEFORE DELETE ON leftfold_jobs WHEN NOT EXISTS (SELECT 1 FROM leftfold_maintenance WHERE open) BEGIN
    SELECT raise(ABORT, 'leftfold: delete of jobs is refused: a job with a log stays');
END;
CREATE TRIGGER leftfold_jobs_final AFTER UPDATE ON leftfold_jobs WHEN OLD.state IN (
    -- rendered from the lifecycle: final
    'succeeded', 'cancelled'
    -- end
) AND NOT EXISTS (SELECT 1 FROM leftfold_maintenance WHERE open) BEGIN
    SELECT raise(ABORT, 'leftfold: update of jobs is refused: a final job never changes');
END;
-- Who forgets to close it hears so: nothing is appended to the log meanwhile.
CREATE INDEX leftfold_maintenance_open ON leftfold_maintenance (open) WHERE open;
CREATE TRIGGER leftfold_maintenance_ends BEFORE INSERT ON leftfold_events
WHEN EXISTS (SELECT 1 FROM leftfold_maintenance WHERE open) BEGIN
    SELECT raise(FAIL, 'leftfold: insert of events is refused: a maintenance is open: set open = 0 to end it');
END;
CREATE TRIGGER leftfold_maintenance_stands BEFORE UPDATE ON leftfold_maintenance WHEN NOT OLD.open BEGIN
    SELECT raise(ABORT, 'leftfold: update of maintenance is refused: what was done stands');
END;
CREATE TRIGGER leftfold_maintenance_stays BEFORE DELETE ON leftfold_maintenance BEGIN
    SELECT raise(ABORT, 'leftfold: delete of maintenance is refused: what was done stands');
END;
