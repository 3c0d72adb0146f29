-- The store on PostgreSQL. `{schema}` is the schema that everything lives in. Times are microseconds since 1970, UTC.

CREATE TYPE {schema}.state AS ENUM (
    -- rendered from the lifecycle: states
    'inbox', 'queued', 'retrying', 'claimed', 'running', 'waiting', 'parked', 'stalled', 'succeeded', 'failed', 'cancelled', 'dead_lettered'
    -- end
);

-- The truth: one row per entry, which is an event, or two that were said at once (`claimed+started`): then the version is
-- that of the second. A hash chains each to the one before it; the last one stands whole in the job's row.
CREATE TABLE {schema}.events (
    at           bigint   NOT NULL,
    xid          bigint   NOT NULL DEFAULT txid_current(),  -- by which a feed knows what it saw
    job_id       uuid     NOT NULL,
    version      integer  NOT NULL,
    format       smallint NOT NULL,
    event        text     NOT NULL,
    -- Empty, not null: without any null a row has no bitmap of them, which is 8 bytes of each event.
    who          text     NOT NULL DEFAULT '',  -- empty: who usually says this event
    actor        text     NOT NULL,
    request_id   text     NOT NULL DEFAULT '',
    request_hash text     NOT NULL DEFAULT '',
    data         text     NOT NULL,
    seal         bytea    NOT NULL,   -- the beginning of its hash
    PRIMARY KEY (job_id, version)
);
CREATE UNIQUE INDEX events_request ON {schema}.events (job_id, request_id) WHERE request_id <> '';
CREATE INDEX events_when ON {schema}.events USING brin (xid, at) WITH (autosummarize = on, pages_per_range = 32);

-- What the log comes to: small, and derived. Payload, wait, result and error stay in their events; `enqueued`,
-- `wait`, `result` and `error` are the versions to find them at. Only lease end and renewals stand nowhere else.
CREATE TABLE {schema}.jobs (
    id                  uuid     PRIMARY KEY,
    created_at          bigint   NOT NULL,
    updated_at          bigint   NOT NULL,
    version             integer  NOT NULL,
    renewals            integer  NOT NULL,
    attempt             integer  NOT NULL,
    failures            integer  NOT NULL,
    state               {schema}.state NOT NULL,
    priority            smallint NOT NULL,
    due                 bigint,
    ended_at            bigint,
    deadline            bigint,           -- of the wait
    frozen_at           bigint,            -- its log or this row cannot be true: nobody touches it until that is settled
    until               bigint,           -- the end of the lease, or of the last one
    lease               bigint,           -- how long a lease is, by the job's policy; null: the usual time
    cancel_requested_at bigint,
    resolved_at         bigint,            -- since when it is settled
    wait                integer,
    error               integer,
    enqueued            integer,
    result              integer,
    queue               text COLLATE "C"     NOT NULL,
    tenant              text COLLATE "C"     NOT NULL,
    kind                text COLLATE "C"     NOT NULL,
    token               text,              -- the digest; nobody but the owner has the token
    key                 text COLLATE "C",
    correlation_id      text,
    incident            text COLLATE "C",  -- of a dead letter: which of them the same thing went wrong with
    head                bytea    NOT NULL,
    owner               text,
    renewed_by          text,              -- the request_id of the last renewal, and what it asked
    renewed_hash        text
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);

-- A row has what its state asks for, and nothing that it forbids. No CHECK says so: PostgreSQL parses the text of each anew
-- for every statement. A function is parsed once, and makes ready what it comes to: cheapest where one job is enqueued.
-- Rows change by the hundred: then it is cheaper to ask in the condition of a trigger than to call the function.
CREATE FUNCTION {schema}.fit() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    CASE NEW.state
        -- rendered from the lifecycle: shape
        WHEN 'queued' THEN
            IF num_nulls(NEW.due) = 0 AND num_nonnulls(NEW.owner, NEW.token, NEW.wait, NEW.result, NEW.error, NEW.ended_at, NEW.incident, NEW.resolved_at) = 0 THEN RETURN NEW; END IF;
        WHEN 'claimed', 'running' THEN
            IF num_nulls(NEW.owner, NEW.token) = 0 AND num_nonnulls(NEW.due, NEW.wait, NEW.result, NEW.error, NEW.ended_at, NEW.incident, NEW.resolved_at) = 0 THEN RETURN NEW; END IF;
        WHEN 'succeeded' THEN
            IF num_nulls(NEW.result, NEW.ended_at) = 0 AND num_nonnulls(NEW.due, NEW.owner, NEW.token, NEW.wait, NEW.error, NEW.incident) = 0 THEN RETURN NEW; END IF;
        WHEN 'inbox', 'stalled' THEN
            IF num_nonnulls(NEW.due, NEW.owner, NEW.token, NEW.wait, NEW.result, NEW.error, NEW.ended_at, NEW.incident, NEW.resolved_at) = 0 THEN RETURN NEW; END IF;
        WHEN 'retrying' THEN
            IF num_nulls(NEW.due, NEW.error) = 0 AND num_nonnulls(NEW.owner, NEW.token, NEW.wait, NEW.result, NEW.ended_at, NEW.incident, NEW.resolved_at) = 0 THEN RETURN NEW; END IF;
        WHEN 'waiting', 'parked' THEN
            IF num_nulls(NEW.wait) = 0 AND num_nonnulls(NEW.due, NEW.owner, NEW.token, NEW.result, NEW.error, NEW.ended_at, NEW.incident, NEW.resolved_at) = 0 THEN RETURN NEW; END IF;
        WHEN 'failed', 'dead_lettered' THEN
            IF num_nulls(NEW.error, NEW.ended_at) = 0 AND num_nonnulls(NEW.due, NEW.owner, NEW.token, NEW.wait, NEW.result) = 0 THEN RETURN NEW; END IF;
        WHEN 'cancelled' THEN
            IF num_nulls(NEW.ended_at) = 0 AND num_nonnulls(NEW.due, NEW.owner, NEW.token, NEW.wait, NEW.result, NEW.error, NEW.incident) = 0 THEN RETURN NEW; END IF;
        -- end
        ELSE NULL;
    END CASE;
    RAISE EXCEPTION 'leftfold: job % has not the shape of one that is %', NEW.id, NEW.state
        USING ERRCODE = 'check_violation', SCHEMA = TG_TABLE_SCHEMA, TABLE = TG_TABLE_NAME, CONSTRAINT = TG_NAME;
END $$;
CREATE TRIGGER jobs_begin_in_shape BEFORE INSERT ON {schema}.jobs FOR EACH ROW EXECUTE FUNCTION {schema}.fit();
CREATE TRIGGER jobs_stay_in_shape AFTER UPDATE ON {schema}.jobs FOR EACH ROW WHEN (
    -- rendered from the lifecycle: out_of_shape
    (NEW.due IS NULL) = (NEW.state IN ('queued', 'retrying'))
    OR (NEW.owner IS NULL) = (NEW.state IN ('claimed', 'running'))
    OR (NEW.token IS NULL) = (NEW.state IN ('claimed', 'running'))
    OR (NEW.wait IS NULL) = (NEW.state IN ('waiting', 'parked'))
    OR (NEW.result IS NULL) = (NEW.state IN ('succeeded'))
    OR (NEW.error IS NULL) = (NEW.state IN ('retrying', 'failed', 'dead_lettered'))
    OR (NEW.ended_at IS NULL) = (NEW.state IN ('succeeded', 'failed', 'cancelled', 'dead_lettered'))
    OR NEW.incident IS NOT NULL AND NEW.state NOT IN ('failed', 'dead_lettered')
    OR NEW.resolved_at IS NOT NULL AND NEW.state NOT IN ('succeeded', 'failed', 'cancelled', 'dead_lettered')
    -- end
) EXECUTE FUNCTION {schema}.fit();

-- No index speaks of a column that a renewal or a start changes: those rewrite the row in place (HOT).
CREATE INDEX jobs_claimable ON {schema}.jobs (queue, priority DESC, due, id) WHERE due IS NOT NULL AND frozen_at IS NULL;
CREATE INDEX jobs_leased ON {schema}.jobs (id) WHERE token IS NOT NULL;  -- they grow at the end, where it is cheapest
CREATE INDEX jobs_deadline ON {schema}.jobs (deadline) WHERE deadline IS NOT NULL;
CREATE INDEX jobs_frozen ON {schema}.jobs (id) WHERE frozen_at IS NOT NULL;
CREATE INDEX jobs_error ON {schema}.jobs (id) WHERE error IS NOT NULL;
CREATE INDEX jobs_incident ON {schema}.jobs (incident, ended_at) WHERE incident IS NOT NULL;
CREATE INDEX jobs_wait ON {schema}.jobs (id) WHERE wait IS NOT NULL;
CREATE INDEX jobs_correlation ON {schema}.jobs (correlation_id) WHERE correlation_id IS NOT NULL;
CREATE UNIQUE INDEX jobs_key ON {schema}.jobs (tenant, kind, key) WHERE key IS NOT NULL AND ended_at IS NULL;

-- How many jobs are where: the sum of the rows. Transitions append to it, and nobody waits for a common row.
CREATE TABLE {schema}.counts (
    queue text COLLATE "C"           NOT NULL,
    kind  text COLLATE "C"           NOT NULL,
    state {schema}.state NOT NULL,
    jobs  bigint         NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.05);

-- What was answered to requests that speak of no one job: enqueue and claim.
CREATE TABLE {schema}.requests (
    tenant       text COLLATE "C"   NOT NULL,
    request_id   text   NOT NULL,
    request_hash text   NOT NULL,
    at           bigint NOT NULL,
    response     text   NOT NULL,
    PRIMARY KEY (tenant, request_id)
);

CREATE TABLE {schema}.queues (
    name      text COLLATE "C" PRIMARY KEY,
    paused_at bigint,
    paused_by text,
    reason    text
);

-- How far each consumer of the feed has come: it has what was committed in `seen`, and of what was committed in
-- `target` everything up to (at, job_id, version). Order of commit is not order of numbers; a snapshot forgets nothing.
CREATE TABLE {schema}.feeds (
    consumer   text COLLATE "C" PRIMARY KEY,
    rev        bigint      NOT NULL,
    seen       pg_snapshot NOT NULL,
    target     pg_snapshot,
    at         bigint,
    job_id     uuid,
    version    integer,
    started_at bigint      NOT NULL,
    moved_at   bigint      NOT NULL
);

-- The workers that live, or died without a word: who they are, and when each of their loops last ran.
CREATE TABLE {schema}.workers (
    name       text COLLATE "C" PRIMARY KEY,
    started_at bigint NOT NULL,
    beat_at    bigint NOT NULL,
    told       text   NOT NULL
);

-- The only way to change what is written: a transaction that says here who does it, and why.
CREATE TABLE {schema}.maintenance (
    id     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at     bigint NOT NULL,
    actor  text   NOT NULL,
    reason text   NOT NULL,
    xid    xid8   NOT NULL DEFAULT pg_current_xact_id()
);

CREATE FUNCTION {schema}.refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM {schema}.maintenance WHERE xid = pg_current_xact_id()) THEN
        RETURN coalesce(NEW, OLD);
    END IF;
    RAISE EXCEPTION 'leftfold: % of % is refused: %', lower(TG_OP), TG_TABLE_NAME, TG_ARGV[0];
END $$;

CREATE TRIGGER events_stand BEFORE UPDATE OR DELETE ON {schema}.events
    FOR EACH ROW EXECUTE FUNCTION {schema}.refuse('what is on the log stands');
CREATE TRIGGER events_stay BEFORE TRUNCATE ON {schema}.events
    FOR EACH STATEMENT EXECUTE FUNCTION {schema}.refuse('what is on the log stands');
CREATE TRIGGER jobs_stay BEFORE DELETE ON {schema}.jobs
    FOR EACH ROW EXECUTE FUNCTION {schema}.refuse('a job with a log stays');
CREATE TRIGGER jobs_stay_all BEFORE TRUNCATE ON {schema}.jobs
    FOR EACH STATEMENT EXECUTE FUNCTION {schema}.refuse('a job with a log stays');
-- Behind the change: before it, PostgreSQL would lock each row once more.
CREATE TRIGGER jobs_keep_their_name AFTER UPDATE OF id ON {schema}.jobs FOR EACH ROW WHEN (OLD.id <> NEW.id)
    EXECUTE FUNCTION {schema}.refuse('a job keeps its id');
CREATE TRIGGER jobs_final AFTER UPDATE ON {schema}.jobs FOR EACH ROW WHEN (OLD.state IN (
    -- rendered from the lifecycle: final
    'succeeded', 'cancelled'
    -- end
)) EXECUTE FUNCTION {schema}.refuse('a final job never changes');

CREATE FUNCTION {schema}.stand() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'leftfold: % of % is refused: what was done stands', lower(TG_OP), TG_TABLE_NAME;
END $$;
CREATE TRIGGER maintenance_stands BEFORE UPDATE OR DELETE OR TRUNCATE ON {schema}.maintenance
    FOR EACH STATEMENT EXECUTE FUNCTION {schema}.stand();

-- The store's clock.
CREATE FUNCTION {schema}.clock() RETURNS bigint LANGUAGE sql VOLATILE AS $$
    SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
$$;

-- The hash of an event, as `leftfold.core.record.link` computes it. Each argument is used once, and no other function of
-- ours is called: only then does the planner put it into the query, where it costs a sixth.
CREATE FUNCTION {schema}.link(previous bytea, job_id uuid, version integer, at bigint, said text, data text)
RETURNS bytea LANGUAGE sql STABLE AS $$
    SELECT sha256(previous || convert_to(job_id || ' ' || version || ' ' || at || ' ' || said || data, 'UTF8'))
$$;
