-- Every query of the PostgreSQL store. `:name` is an argument: one value, or one array of a batch's values.
-- `{schema}` is the schema. No state is named here: those that count come from the lifecycle's table.
--
-- The shape of a write: find what is asked for, move the row and seal the event into its chain (`moved`), append the
-- event, count. Rows are reached by ctid, so that no statistics lead the planner astray. Where a lease begins or is
-- renewed, the row is locked first (`held`), and where one may have to wait for that, the clock is read behind it.
-- `OFFSET 0` parts what is worked out from what it is used for, which else would be worked out again for every use.
-- What a statement does not give back, it refused: `decide` says why.
--
-- A batch keeps its alias through a statement: where all of its rows are alike in a column, the driver writes the argument
-- wherever `a.column` stands, and no row carries it.

-- part: few
-- True of every row, which the planner does not know: it takes them for few, whatever its statistics say, and goes to
-- each by its ctid. Else it may read the whole table to find some hundred rows of it.
s.now = s.now + 0

-- part: counted
counted AS (
    INSERT INTO {schema}.counts
    SELECT g.queue, g.kind, change.state, change.jobs
    FROM (SELECT queue, kind, was, state, count(*) AS jobs FROM moved WHERE was <> state GROUP BY queue, kind, was, state) g
    CROSS JOIN LATERAL (VALUES (g.was, -g.jobs), (g.state, g.jobs)) change (state, jobs)
)

-- part: batch
unnest(:id::uuid[], :tenant::text[], :kind::text[], :queue::text[], :priority::smallint[], :key::text[],
                  :correlation_id::text[], :due::bigint[], :delay::bigint[], :lease::bigint[], :rest::text[],
                  :request_hash::text[], :said::text[])
                 AS b (id, tenant, kind, queue, priority, key, correlation_id, due, delay, lease, rest, request_hash, said)

-- part: data
CASE WHEN b.from_then > b.at THEN '{"due":' || b.from_then || ',' || b.rest ELSE '{' || b.rest END

-- part: hash
{schema}.link(decode('{genesis}', 'hex'), b.id, 1, b.at, b.said, {data})

-- part: asked
clock AS MATERIALIZED (SELECT coalesce(:now::bigint, {schema}.clock()) AS at),  -- one moment for all of a part
sealed AS MATERIALIZED (
    SELECT b.*, {hash} AS hash
    FROM (
        SELECT b.*, clock.at, greatest(coalesce(b.due, clock.at + b.delay, clock.at), clock.at) AS from_then
        FROM clock, {batch}
        OFFSET 0
    ) b
)

-- part: made
INSERT INTO {schema}.jobs (id, created_at, updated_at, due, lease, version, renewals, attempt, failures, enqueued,
                               state, priority, head, tenant, kind, queue, key, correlation_id)
    SELECT b.id, b.at, b.at, b.from_then, b.lease, 1, 0, 0, 0, 1,
           {enqueued}, b.priority, b.hash, b.tenant, b.kind, b.queue, b.key, b.correlation_id

-- part: appended
INSERT INTO {schema}.events (at, job_id, version, format, event, actor, request_id, request_hash, data, seal)
    SELECT b.at, b.id, 1, {format}, 'enqueued', :actor, coalesce(:request_id, ''), coalesce(b.request_hash, ''), {data},
           substr(b.hash, 1, {seal_bytes})

-- name: enqueue
-- Nothing can stand in the way of jobs without keys.
WITH {asked},
made AS (
    {made}
    FROM sealed b
),
appended AS (
    {appended}
    FROM sealed b
)
INSERT INTO {schema}.counts SELECT b.queue, b.kind, {enqueued}, count(*) FROM sealed b GROUP BY 1, 2 {ringing};

-- alone: enqueue
-- Due at once: the others go the long way. What the event says of time and hash comes from the row.
WITH made AS (
    {made}
    FROM (
        SELECT b.at, b.at AS from_then,
               {schema}.link(decode('{genesis}', 'hex'), b.id, 1, b.at, b.said, '{' || b.rest) AS hash
        FROM (SELECT coalesce(:now::bigint, {schema}.clock()) AS at FROM {batch} OFFSET 0) b
    ) b
    RETURNING created_at AS at, head AS hash
),
appended AS (
    INSERT INTO {schema}.events (at, job_id, version, format, event, actor, request_id, request_hash, data, seal)
    SELECT b.at, b.id, 1, {format}, 'enqueued', :actor, coalesce(:request_id, ''), coalesce(b.request_hash, ''),
           '{' || b.rest, substr(b.hash, 1, {seal_bytes})
    FROM made b
)
INSERT INTO {schema}.counts VALUES (b.queue, b.kind, {enqueued}, 1) {ringing};

-- name: enqueue_sealed
-- The same, made and sealed by who asks, who knows the time: the next ones while these are written.
WITH sealed AS MATERIALIZED (
    SELECT b.* FROM unnest(:id::uuid[], :hash::bytea[], :data::text[], :at::bigint[], :from_then::bigint[], :tenant::text[],
                           :kind::text[], :queue::text[], :priority::smallint[], :key::text[], :correlation_id::text[],
                           :lease::bigint[], :request_hash::text[])
                    AS b (id, hash, data, at, from_then, tenant, kind, queue, priority, key, correlation_id, lease, request_hash)
),
made AS (
    {made}
    FROM sealed b
),
appended AS (
    INSERT INTO {schema}.events (at, job_id, version, format, event, actor, data, seal)
    SELECT b.at, b.id, 1, {format}, 'enqueued', :actor, b.data, substr(b.hash, 1, {seal_bytes})
    FROM sealed b
)
INSERT INTO {schema}.counts SELECT b.queue, b.kind, {enqueued}, count(*) FROM sealed b GROUP BY 1, 2 {ringing};

-- name: enqueue_keyed
-- A job whose key is taken by a live one is not given back.
WITH {asked},
made AS (
    {made}
    FROM sealed b
    ON CONFLICT (tenant, kind, key) WHERE key IS NOT NULL AND ended_at IS NULL DO NOTHING
    RETURNING id, queue, kind, state
),
appended AS (
    {appended}
    FROM sealed b
    WHERE (b.id IN (SELECT id FROM made)) IS TRUE  -- by a hash, however many the planner expects
),
counted AS (INSERT INTO {schema}.counts SELECT queue, kind, state, count(*) FROM made GROUP BY queue, kind, state {ringing})
SELECT id::text FROM made;

-- name: holders
-- The live jobs that hold these keys.
SELECT j.id::text, j.tenant, j.kind, j.key, j.state, j.version, j.renewals, j.attempt
FROM unnest(:tenant::text[], :kind::text[], :key::text[]) AS a (tenant, kind, key)
CROSS JOIN LATERAL (SELECT * FROM {schema}.jobs k
                    WHERE k.tenant = a.tenant AND k.kind = a.kind AND k.key = a.key AND k.ended_at IS NULL OFFSET 0) j;

-- part: candidate
SELECT k.ctid AS place, k.state AS was, k.due AS was_due
        FROM {schema}.jobs k
        WHERE k.queue = lane.queue AND k.priority = lane.priority AND k.due <= clock.now AND k.frozen_at IS NULL
          AND k.state = ANY (:sources::{schema}.state[])
          AND (:kinds::text[] IS NULL OR k.kind = ANY (:kinds::text[]))
          -- Not where the id is spent on this job, for something else.
          AND (:request_id::text IS NULL OR k.renewed_by IS DISTINCT FROM :request_id::text)
          AND (:request_id::text IS NULL OR NOT EXISTS (SELECT FROM {schema}.events e WHERE e.job_id = k.id AND e.request_id = :request_id::text OFFSET 0))

-- part: first
        ORDER BY k.due, k.id
        LIMIT :limit
        FOR UPDATE SKIP LOCKED
    ) j
    LIMIT :limit

-- part: length
coalesce(:lease::bigint, j.lease, {usual_lease})

-- part: claim_data
'{"token":"' || :token::text || CASE WHEN {length} <> {usual_lease} THEN '","lease":' || {length} || '}' ELSE '"}' END

-- part: give
-- A claim that starts its jobs says both in one entry of `:steps` versions.
moved AS (
    UPDATE {schema}.jobs j
    SET state = :target::{schema}.state, version = j.version + :steps::integer, updated_at = greatest(s.now, j.updated_at),
        attempt = j.attempt + 1,
        head = {schema}.link(j.head, j.id, j.version + :steps::integer, greatest(s.now, j.updated_at), :said, {claim_data}),
        owner = :owner, token = :token, until = greatest(s.now, j.updated_at) + {length}, due = NULL, error = NULL
    FROM (SELECT * FROM held OFFSET 0) s WHERE j.ctid = s.place AND {few}
    RETURNING j.id, j.version, j.updated_at, j.attempt, j.failures, j.until, j.enqueued, j.state, j.head, j.queue, j.kind,
              j.priority, {claim_data} AS data, s.was, s.was_due
),
appended AS (
    INSERT INTO {schema}.events (at, job_id, version, format, event, actor, request_id, request_hash, data, seal)
    SELECT updated_at, id, version, {format}, :event, :owner, coalesce(:request_id, ''), coalesce(:request_hash, ''), data,
           substr(head, 1, {seal_bytes})
    FROM moved
),
{counted}
SELECT m.id::text, m.attempt, m.failures, m.until, first.event, first.format, first.data, later.format, later.data,
       m.failures > 0 AND EXISTS (SELECT FROM {schema}.events e WHERE e.job_id = m.id AND e.event = 'stalled' OFFSET 0),
       m.queue, m.priority, m.was_due, (SELECT count(*) FROM lanes WHERE priority IS NOT NULL)
FROM moved m
LEFT JOIN LATERAL (SELECT * FROM {schema}.events e WHERE e.job_id = m.id AND e.version = 1 OFFSET 0) first ON true
LEFT JOIN LATERAL (
    SELECT * FROM {schema}.events e WHERE e.job_id = m.id AND e.version = m.enqueued AND m.enqueued > 1 OFFSET 0
) later ON true;

-- part: lanes
known (queue) AS (
    SELECT min(queue) FROM {schema}.jobs WHERE due IS NOT NULL AND frozen_at IS NULL AND :queues::text[] IS NULL
    UNION ALL
    SELECT (SELECT min(j.queue) FROM {schema}.jobs j WHERE j.due IS NOT NULL AND j.frozen_at IS NULL AND j.queue > k.queue)
    FROM known k WHERE k.queue IS NOT NULL
),
wanted (queue) AS (
    SELECT queue FROM (SELECT queue FROM known UNION SELECT unnest(:queues::text[])) q
    WHERE queue IS NOT NULL
      AND NOT EXISTS (SELECT FROM {schema}.queues p WHERE p.name = queue AND p.paused_at IS NOT NULL)
),
lanes (queue, priority) AS (
    SELECT w.queue, (SELECT max(j.priority) FROM {schema}.jobs j WHERE j.due IS NOT NULL AND j.frozen_at IS NULL AND j.queue = w.queue)
    FROM wanted w
    UNION ALL
    SELECT l.queue, (SELECT max(j.priority) FROM {schema}.jobs j
                     WHERE j.due IS NOT NULL AND j.frozen_at IS NULL AND j.queue = l.queue AND j.priority < l.priority)
    FROM lanes l WHERE l.priority IS NOT NULL
)

-- name: claim
-- A lane is a queue and a priority: its due jobs stand side by side in the index, so jobs that are not due cost
-- nothing. The lanes are found by hopping through the index, and read in the order of priority until there is enough.
WITH RECURSIVE
clock AS MATERIALIZED (SELECT coalesce(:now::bigint, {schema}.clock()) AS now),
{lanes},
held AS MATERIALIZED (
    SELECT j.*, clock.now
    FROM clock, (SELECT queue, priority FROM lanes WHERE priority IS NOT NULL ORDER BY priority DESC, random()) lane
    CROSS JOIN LATERAL (
        {candidate}
        {first}
),
{give}

-- name: claim_on
-- The same where one lane is all there is, from the due time on where the last claim left off: entries of jobs that were
-- claimed stay in the index as long as anybody holds an older snapshot, and need not be read again and again. If there
-- is another lane, or the clock was set back, nothing is given: then all lanes are to be looked at.
WITH clock AS MATERIALIZED (SELECT coalesce(:now::bigint, {schema}.clock()) AS now),
lanes (queue, priority) AS MATERIALIZED (
    SELECT q.name, :priority::smallint FROM clock, (SELECT :queue::text AS name) q
    WHERE NOT EXISTS (SELECT FROM {schema}.queues p WHERE p.name = q.name AND p.paused_at IS NOT NULL)
      -- min and max walk the index; an EXISTS would read the whole table once its plan is kept.
      AND (SELECT max(j.priority) FROM {schema}.jobs j WHERE j.due IS NOT NULL AND j.frozen_at IS NULL
           AND j.queue = :queue::text AND j.priority > :priority::smallint) IS NULL
      AND (:alone OR (SELECT min(j.queue) FROM {schema}.jobs j WHERE j.due IS NOT NULL AND j.frozen_at IS NULL
                      AND j.queue > :queue::text) IS NULL)
      AND (:alone OR (SELECT max(j.queue) FROM {schema}.jobs j WHERE j.due IS NOT NULL AND j.frozen_at IS NULL
                      AND j.queue < :queue::text) IS NULL)
      AND clock.now >= :due::bigint
),
held AS MATERIALIZED (
    SELECT j.*, clock.now
    FROM clock, lanes lane
    CROSS JOIN LATERAL (
        {candidate}
          AND k.due >= :due::bigint
        {first}
),
{give}

-- name: next_due
-- How long until a job of these queues becomes due that was not due a moment ago, lane by lane.
WITH RECURSIVE
clock AS MATERIALIZED (SELECT coalesce(:now::bigint, {schema}.clock()) AS now),
{lanes}
SELECT min(j.due) - min(clock.now)
FROM clock, lanes CROSS JOIN LATERAL (
    SELECT k.due FROM {schema}.jobs k
    WHERE k.queue = lanes.queue AND k.priority = lanes.priority AND k.due > clock.now - :lately::bigint AND k.frozen_at IS NULL
    ORDER BY k.due LIMIT 1
) j;

-- name: claims
-- Jobs with what a handler needs of them: the claims of a request that is asked again, or of a claim by id.
SELECT j.id::text, j.attempt, j.failures, j.until, first.event, first.format, first.data, later.format, later.data,
       j.failures > 0 AND EXISTS (SELECT FROM {schema}.events e WHERE e.job_id = j.id AND e.event = 'stalled' OFFSET 0)
FROM unnest(:id::uuid[]) WITH ORDINALITY AS a (id, place)
JOIN {schema}.jobs j ON j.id = a.id
JOIN {schema}.events first ON first.job_id = j.id AND first.version = 1
LEFT JOIN {schema}.events later ON later.job_id = j.id AND later.version = j.enqueued AND j.enqueued > 1
ORDER BY a.place;

-- part: owned
WITH clock AS MATERIALIZED (SELECT coalesce(:now::bigint, {schema}.clock()) AS now),
-- Materialized, with the fence among its columns: one that is an argument would be a condition on the table alone, and a
-- plan from when the table was small would read all of it for that, and all of this again for each of its rows.
asked AS MATERIALIZED (
    SELECT a.*, a.attempt AS by_attempt, a.token AS by_token, k.place, k.was, clock.now
    FROM clock, unnest(:id::uuid[], :attempt::integer[], :token::text[], :actor::text[], :event::text[], :data::text[],
                       :said::text[])
         AS a (id, attempt, token, actor, event, data, said)
    CROSS JOIN LATERAL (SELECT k.ctid AS place, k.state AS was FROM {schema}.jobs k WHERE k.id = a.id OFFSET 0) k
),
moved AS (
    UPDATE {schema}.jobs j
    SET state = coalesce(:target::{schema}.state, j.state), version = j.version + 1, updated_at = greatest(a.now, j.updated_at),
        head = {schema}.link(j.head, j.id, j.version + 1, greatest(a.now, j.updated_at), a.said, a.data),
        owner = CASE WHEN :leased THEN j.owner END, token = CASE WHEN :leased THEN j.token END,
        result = CASE WHEN :has_result THEN j.version + 1 END,
        ended_at = CASE WHEN :ended THEN greatest(a.now, j.updated_at) END
    FROM asked a
    -- Few, as everywhere; and the token is compared so that its index is no way to the row, see `renew`.
    WHERE j.ctid = a.place AND j.state = a.was AND a.now = a.now + 0
      AND j.attempt = a.by_attempt AND j.token IS NOT DISTINCT FROM a.by_token
      AND j.state = ANY (:sources::{schema}.state[]) AND j.version < :events_max AND j.frozen_at IS NULL
    RETURNING a.*, j.id AS job_id, j.state, j.version, j.renewals, j.until, j.cancel_requested_at, j.updated_at, j.queue,
              j.kind, j.head
),
appended AS (
    INSERT INTO {schema}.events (at, job_id, version, format, event, who, actor, data, seal)
    SELECT a.updated_at, a.job_id, a.version, {format}, a.event, coalesce(:who, ''), a.actor, a.data,
           substr(a.head, 1, {seal_bytes})
    FROM moved a
),
{counted}

-- name: own
-- One event of each owner on each job that it holds in one of `:sources`. `:target` is null where the state stays.
-- Nothing is locked before it is written: a row is found by its id, and everything that it must be is asked of the row
-- that is written. One that somebody else has changed meanwhile is judged as it stands then, or left to `decide`.
{owned}
SELECT a.job_id::text, a.state, a.version, a.renewals, a.attempt, a.until, a.cancel_requested_at FROM moved a;

-- name: own_quietly
-- The same, and how many they were; which, only if some were refused.
{owned}
SELECT n.jobs, CASE WHEN n.jobs < :asked THEN (SELECT json_agg(job_id::text)::text FROM moved) END
FROM (SELECT count(*) AS jobs FROM moved) n;

-- name: renew
-- The token is compared so that its index is no way to the row: statistics from when nobody held a job say that it is
-- the shortest, and then all of it was read for each row.
WITH held AS MATERIALIZED (
    SELECT j.place
    FROM unnest(:id::uuid[], :attempt::integer[], :token::text[]) AS a (id, attempt, token)
    CROSS JOIN LATERAL (
        SELECT k.ctid AS place FROM {schema}.jobs k
        WHERE k.id = a.id AND k.attempt = a.attempt AND k.token IS NOT DISTINCT FROM a.token AND k.frozen_at IS NULL
        FOR UPDATE SKIP LOCKED  -- one that somebody writes to is renewed by itself: the others do not wait for it
    ) j
),
timed AS MATERIALIZED (SELECT h.place, coalesce(:now::bigint, {schema}.clock()) AS now FROM held h)
UPDATE {schema}.jobs j
SET until = greatest(t.now + coalesce(:lease::bigint, j.lease, {usual_lease}), j.until), renewals = j.renewals + 1,
    renewed_by = NULL, renewed_hash = NULL
FROM timed t WHERE j.ctid = t.place AND t.now = t.now + 0
RETURNING j.id::text, j.state, j.version, j.renewals, j.attempt, j.until, j.cancel_requested_at;

-- name: look
-- Where jobs stand that these owners hold.
SELECT j.id::text, j.state, j.version, j.renewals, j.attempt, j.until, j.cancel_requested_at, j.token
FROM unnest(:id::uuid[], :attempt::integer[], :token::text[]) AS a (id, attempt, token)
CROSS JOIN LATERAL (SELECT * FROM {schema}.jobs k WHERE k.id = a.id AND k.attempt = a.attempt AND k.token IS NOT DISTINCT FROM a.token OFFSET 0) j;

-- name: lock
-- The rows stay as they are until the transaction ends, and the clock is read behind that.
WITH locked AS MATERIALIZED (
    SELECT id FROM {schema}.jobs WHERE id = ANY (:id::uuid[]) ORDER BY id FOR UPDATE
)
SELECT id::text, coalesce(:now::bigint, {schema}.clock()) FROM locked;

-- name: clock
SELECT coalesce(:now::bigint, {schema}.clock());

-- name: load
-- The whole log of each job, with what its row knows beside it.
SELECT j.id::text, j.head, j.renewals, j.until, j.renewed_by, j.renewed_hash, j.frozen_at, e.version, e.at, e.format, e.event,
       nullif(e.who, ''), e.actor, nullif(e.request_id, ''), nullif(e.request_hash, ''), e.data, e.seal
FROM {schema}.jobs j LEFT JOIN LATERAL (SELECT * FROM {schema}.events k WHERE k.job_id = j.id OFFSET 0) e ON true
WHERE j.id = ANY (:id::uuid[])
ORDER BY j.id, e.version;

-- name: append
INSERT INTO {schema}.events (job_id, version, at, format, event, who, actor, request_id, request_hash, data, seal)
SELECT job_id, version, at, format, event, coalesce(who, ''), actor, coalesce(request_id, ''),
       coalesce(request_hash, ''), data, seal
FROM unnest(:job_id::uuid[], :version::integer[], :at::bigint[], :format::smallint[], :event::text[], :who::text[],
            :actor::text[], :request_id::text[], :request_hash::text[], :data::text[], :seal::bytea[])
     AS a (job_id, version, at, format, event, who, actor, request_id, request_hash, data, seal);

-- name: insert
-- New rows as they are given. One whose key is taken by a live job is not given back.
WITH made AS (
    INSERT INTO {schema}.jobs ({columns})
    SELECT {columns} FROM unnest({arrays}) AS a ({columns})
    ON CONFLICT (tenant, kind, key) WHERE key IS NOT NULL AND ended_at IS NULL DO NOTHING
    RETURNING id, queue, kind, state
),
counted AS (INSERT INTO {schema}.counts SELECT queue, kind, state, count(*) FROM made GROUP BY queue, kind, state)
SELECT id::text FROM made;

-- name: project
-- Rows that follow their log, each from the version that it was decided on.
WITH asked AS MATERIALIZED (
    SELECT a.*, j.ctid AS place, j.queue AS was_queue, j.kind AS was_kind, j.state AS was
    FROM unnest(:before::integer[], {arrays}) AS a (before, {columns})
    CROSS JOIN LATERAL (SELECT ctid, queue, kind, state FROM {schema}.jobs k
                        WHERE k.id = a.id AND k.version = a.before OFFSET 0) j
),
moved AS (
    UPDATE {schema}.jobs j SET {changes} FROM asked a WHERE j.ctid = a.place AND a.before = a.before + 0
    RETURNING j.id, j.queue, j.kind, j.state, a.was_queue, a.was_kind, a.was
),
counted AS (
    INSERT INTO {schema}.counts
    SELECT was_queue, was_kind, was, -count(*) FROM moved
    WHERE (queue, kind, state) <> (was_queue, was_kind, was) GROUP BY was_queue, was_kind, was
    UNION ALL
    SELECT queue, kind, state, count(*) FROM moved
    WHERE (queue, kind, state) <> (was_queue, was_kind, was) GROUP BY queue, kind, state
)
SELECT id::text FROM moved;

-- name: await_request
-- Equal requests go one after the other: the second one finds what the first one was answered.
SELECT pg_advisory_xact_lock(hashtextextended('{schema}' || :tenant::text || ' ' || :request_id::text, 0));

-- name: recall
SELECT request_hash, response FROM {schema}.requests WHERE tenant = :tenant AND request_id = :request_id;

-- name: remember
-- Nothing comes back if the request was remembered meanwhile.
INSERT INTO {schema}.requests (tenant, request_id, request_hash, at, response)
VALUES (:tenant, :request_id, :request_hash, coalesce(:now::bigint, {schema}.clock()), :response)
ON CONFLICT DO NOTHING RETURNING request_id;

-- name: states
SELECT id::text, state FROM {schema}.jobs WHERE id = ANY (:id::uuid[]);

-- name: list
-- Newest first. An argument that is null asks for nothing: the driver leaves its line out, so that any plan is for
-- what is asked. Jobs that are leased, wait or have an error are few, and have an index of their own.
SELECT id::text, {summary}
FROM {schema}.jobs
WHERE true
  AND (:before::uuid IS NULL OR id < :before::uuid)
  AND (:states::{schema}.state[] IS NULL OR state = ANY (:states::{schema}.state[]))
  AND (:leased::boolean IS NULL OR token IS NOT NULL)
  AND (:waits::boolean IS NULL OR wait IS NOT NULL)
  AND (:erred::boolean IS NULL OR error IS NOT NULL)
  AND (:queue::text IS NULL OR queue = :queue)
  AND (:kind::text IS NULL OR kind = :kind)
  AND (:tenant::text IS NULL OR tenant = :tenant)
  AND (:key::text IS NULL OR key = :key)
  AND (:correlation_id::text IS NULL OR correlation_id = :correlation_id)
  AND (:owner::text IS NULL OR owner = :owner)
  AND (:incident::text IS NULL OR incident = :incident)
  AND (:resolved::boolean IS NULL OR (resolved_at IS NOT NULL) = :resolved)
  AND (:ids::uuid[] IS NULL OR id = ANY (:ids::uuid[]))
ORDER BY jobs.id DESC LIMIT :limit;

-- name: incidents
-- Dead letters by what went wrong, the last one seen first. Why, tells the newest of them: it is the same for all. Those
-- that are frozen are for `verify` to speak of.
SELECT g.incident, g.kind, g.open, g.resolved, g.first_at, g.last_at, oldest.id::text, newest.id::text,
       e.event, e.format, e.data
FROM (
    SELECT incident, min(kind) AS kind, count(*) - count(resolved_at) AS open, count(resolved_at) AS resolved,
           min(ended_at) AS first_at, max(ended_at) AS last_at
    FROM {schema}.jobs
    WHERE incident IS NOT NULL AND frozen_at IS NULL
      AND (:beginning::text IS NULL OR (incident >= :beginning AND incident < :beginning || 'g'))
      AND (:queue::text IS NULL OR queue = :queue)
      AND (:kind::text IS NULL OR kind = :kind)
      AND (:tenant::text IS NULL OR tenant = :tenant)
    GROUP BY incident
    HAVING true
      AND (:is_open::boolean IS NULL OR (count(*) > count(resolved_at)) = :is_open)
      AND (:after::text IS NULL OR (max(ended_at), incident) < (:after_at::bigint, :after))
    ORDER BY max(ended_at) DESC, incident DESC LIMIT :limit
) g
CROSS JOIN LATERAL (
    SELECT j.id FROM {schema}.jobs j WHERE j.incident = g.incident AND j.frozen_at IS NULL
      AND (:queue::text IS NULL OR j.queue = :queue)
      AND (:kind::text IS NULL OR j.kind = :kind)
      AND (:tenant::text IS NULL OR j.tenant = :tenant)
    ORDER BY j.ended_at, j.id LIMIT 1
) oldest
CROSS JOIN LATERAL (
    SELECT j.id, j.error FROM {schema}.jobs j WHERE j.incident = g.incident AND j.frozen_at IS NULL
      AND (:queue::text IS NULL OR j.queue = :queue)
      AND (:kind::text IS NULL OR j.kind = :kind)
      AND (:tenant::text IS NULL OR j.tenant = :tenant)
    ORDER BY j.ended_at DESC, j.id DESC LIMIT 1
) newest
LEFT JOIN {schema}.events e ON e.job_id = newest.id AND e.version = newest.error
ORDER BY g.last_at DESC, g.incident DESC;

-- name: find
-- Ids that begin so: two of them mean that the beginning is too short.
SELECT id::text FROM {schema}.jobs WHERE id BETWEEN :low::uuid AND :high::uuid ORDER BY jobs.id LIMIT 2;

-- name: counts
SELECT queue, kind, state, sum(jobs)::bigint FROM {schema}.counts
GROUP BY queue, kind, state HAVING sum(jobs) <> 0;

-- name: fold_counts
-- Put one row in the place of many. Whoever appends meanwhile waits for nothing.
WITH taken AS MATERIALIZED (SELECT ctid FROM {schema}.counts LIMIT :limit FOR UPDATE SKIP LOCKED),
gone AS (DELETE FROM {schema}.counts WHERE ctid = ANY (ARRAY(SELECT ctid FROM taken)) RETURNING queue, kind, state, jobs)
INSERT INTO {schema}.counts SELECT queue, kind, state, sum(jobs) FROM gone GROUP BY queue, kind, state;

-- name: queues
SELECT q.name, p.paused_at, p.paused_by, p.reason
FROM (SELECT DISTINCT queue AS name FROM {schema}.counts UNION SELECT name FROM {schema}.queues) q
LEFT JOIN {schema}.queues p USING (name);

-- name: pause
-- A queue that is paused already stays as it was paused.
INSERT INTO {schema}.queues AS q (name, paused_at, paused_by, reason)
VALUES (:name, coalesce(:now::bigint, {schema}.clock()), :actor, :reason)
ON CONFLICT (name) DO UPDATE SET paused_at = EXCLUDED.paused_at, paused_by = EXCLUDED.paused_by, reason = EXCLUDED.reason
WHERE q.paused_at IS NULL RETURNING name;

-- name: paused
-- The paused queues of these jobs.
SELECT p.name FROM {schema}.jobs j JOIN {schema}.queues p ON p.name = j.queue
WHERE j.id = ANY (:id::uuid[]) AND p.paused_at IS NOT NULL;

-- name: unpause
UPDATE {schema}.queues SET paused_at = NULL, paused_by = NULL, reason = NULL
WHERE name = :name AND paused_at IS NOT NULL RETURNING name;

-- name: feed_cursor
-- Where a consumer stands, and what is committed by now.
SELECT coalesce(f.rev, 0), coalesce(f.seen::text, '1:1:'), f.target::text, pg_current_snapshot()::text, f.at,
       f.job_id::text, f.version, true, pg_is_in_recovery()
FROM (SELECT :limit::bigint) one LEFT JOIN {schema}.feeds f ON f.consumer = :consumer;

-- name: feed_stretch
-- A look at so many of the new events, in the order of the table: about that of time.
SELECT count(*), max(at) FROM (
    (SELECT at FROM {schema}.events WHERE xid >= :from AND xid < :to AND at >= :at LIMIT :rows)
    UNION ALL
    (SELECT at FROM {schema}.events WHERE :missed::bigint[] <> '{}' AND xid = ANY (:missed::bigint[]) AND at >= :at LIMIT :rows)
) e;

-- name: feed_page
-- What the target shows and the consumer has not seen. UNION ALL, for an OR would read the whole table. That nothing
-- was missed is asked by itself: of an empty array the planner believes that any index holds it.
SELECT e.job_id::text, e.version, e.at, e.format, e.event, nullif(e.who, ''), e.actor, nullif(e.request_id, ''),
       nullif(e.request_hash, ''), e.data
FROM (
    SELECT * FROM {schema}.events WHERE xid >= :from AND xid < :to AND at >= :at
    UNION ALL
    SELECT * FROM {schema}.events WHERE :missed::bigint[] <> '{}' AND xid = ANY (:missed::bigint[]) AND xid < :to AND at >= :at
) e
WHERE (e.xid < :low OR e.xid <> ALL (:open::bigint[]))
  AND (e.at, e.job_id, e.version) > (:at, :job_id::uuid, :version)
  AND (:until::bigint IS NULL OR e.at <= :until::bigint)
ORDER BY e.at, e.job_id, e.version LIMIT :limit;

-- name: feed_begin
-- The time is its first rev: a page of a namesake that was forgotten has another one.
INSERT INTO {schema}.feeds (consumer, rev, seen, started_at, moved_at)
SELECT :consumer, now, :seen::pg_snapshot, now, now FROM (SELECT coalesce(:now::bigint, {schema}.clock()) AS now) c
ON CONFLICT DO NOTHING RETURNING rev;

-- name: feed_move
-- Nothing comes back if somebody else moved it meanwhile, or if the page is of a server that knew more than this one.
UPDATE {schema}.feeds
SET rev = rev + 1, seen = :seen::pg_snapshot, target = :target::pg_snapshot, at = :at, job_id = :job_id::uuid,
    version = :version, moved_at = coalesce(:now::bigint, {schema}.clock())
WHERE consumer = :consumer AND rev = :rev
  AND pg_snapshot_xmax(coalesce(:target, :seen)::pg_snapshot) <= pg_snapshot_xmax(pg_current_snapshot())
RETURNING consumer;

-- name: feed_forget
DELETE FROM {schema}.feeds WHERE consumer = :consumer RETURNING consumer;

-- name: feeds
SELECT f.consumer, f.started_at, f.moved_at, least(coalesce(sum(e.events), 0), :most)::bigint, min(e.at)
FROM {schema}.feeds f
LEFT JOIN LATERAL (
    SELECT n.at, CASE WHEN n.event = {together} AND (n.at, n.job_id, n.version - 1) IS DISTINCT FROM (f.at, f.job_id, f.version)
                      THEN 2 ELSE 1 END AS events
    FROM (
        SELECT at, job_id, version, event, xid FROM {schema}.events WHERE xid >= pg_snapshot_xmax(f.seen)::text::bigint
        UNION ALL
        SELECT at, job_id, version, event, xid FROM {schema}.events
        WHERE xid = ANY (ARRAY(SELECT x::text::bigint FROM pg_snapshot_xip(f.seen) x))
    ) n
    WHERE f.target IS NULL
       OR (n.at, n.job_id, n.version) > (f.at, f.job_id, f.version)
       OR NOT pg_visible_in_snapshot(n.xid::text::xid8, f.target)
    LIMIT :most
) e ON true
GROUP BY f.consumer, f.started_at, f.moved_at;

-- name: audit
-- Jobs in the order of ids, each with its row, if it has one, and its log, as both stood at one moment.
WITH page AS MATERIALIZED (
    SELECT * FROM {schema}.jobs
    WHERE true
      AND (:after::uuid IS NULL OR id > :after::uuid)
      AND (:ids::uuid[] IS NULL OR id = ANY (:ids::uuid[]))
      AND (:since::bigint IS NULL OR updated_at >= :since)
      AND (:states::{schema}.state[] IS NULL OR state = ANY (:states::{schema}.state[]))
      AND (:queue::text IS NULL OR queue = :queue)
      AND (:kind::text IS NULL OR kind = :kind)
      AND (:tenant::text IS NULL OR tenant = :tenant)
    ORDER BY id LIMIT :limit
),
named (id) AS (
    SELECT id FROM page
    UNION
    SELECT id FROM unnest(:ids::uuid[]) AS a (id) WHERE :after::uuid IS NULL  -- these may have no row any more
      AND NOT EXISTS (SELECT FROM {schema}.jobs j WHERE j.id = a.id OFFSET 0)
      AND EXISTS (SELECT FROM {schema}.events e WHERE e.job_id = a.id OFFSET 0)
)
SELECT n.id::text, {row}, p.frozen_at, e.version, e.at, e.format, e.event, nullif(e.who, ''), e.actor,
       nullif(e.request_id, ''), nullif(e.request_hash, ''), e.data, e.seal
FROM named n LEFT JOIN page p ON p.id = n.id
LEFT JOIN LATERAL (SELECT * FROM {schema}.events k WHERE k.job_id = n.id OFFSET 0) e ON true
ORDER BY n.id, e.version;

-- name: audit_counts
SELECT coalesce(c.queue, j.queue), coalesce(c.kind, j.kind), coalesce(c.state, j.state), coalesce(c.jobs, 0)::bigint,
       coalesce(j.jobs, 0)
FROM (SELECT queue, kind, state, sum(jobs) AS jobs FROM {schema}.counts GROUP BY queue, kind, state) c
FULL JOIN (SELECT queue, kind, state, count(*) AS jobs FROM {schema}.jobs GROUP BY queue, kind, state) j
    ON j.queue = c.queue AND j.kind = c.kind AND j.state = c.state
WHERE coalesce(c.jobs, 0) <> coalesce(j.jobs, 0);

-- name: audit_keyed
SELECT count(*) FROM {schema}.jobs WHERE key IS NOT NULL AND coalesce(ended_at, 0) = 0;

-- name: audit_keys
-- Not by the index that would have to be broken. Some of the keys at a time.
SELECT tenant, kind, key, count(*) FROM {schema}.jobs
WHERE key IS NOT NULL AND coalesce(ended_at, 0) = 0 AND abs(hashtextextended(key, 0) % :parts) = :part
GROUP BY tenant, kind, key HAVING count(*) > 1;

-- name: audit_orphans
SELECT e.job_id::text, count(*) + count(*) FILTER (WHERE e.event = {together}) FROM {schema}.events e
WHERE NOT EXISTS (SELECT FROM {schema}.jobs j WHERE j.id = e.job_id)
GROUP BY e.job_id ORDER BY e.job_id LIMIT :limit;

-- name: begin_maintenance
-- One at a time: two that counted anew at once would both add what is missing.
WITH alone AS MATERIALIZED (SELECT pg_advisory_xact_lock(hashtextextended('{schema}.maintenance', 0)))
INSERT INTO {schema}.maintenance (at, actor, reason)
SELECT coalesce(:now::bigint, {schema}.clock()), :actor, :reason FROM alone;

-- name: end_maintenance
-- It ends with its transaction.
SELECT 1;

-- name: freeze
UPDATE {schema}.jobs SET frozen_at = coalesce(:now::bigint, {schema}.clock()) WHERE id = ANY (:id::uuid[]);

-- name: restore
-- Rows as their logs say, those that were lost too. The counters are counted anew behind that.
WITH asked AS MATERIALIZED (SELECT a.* FROM unnest({arrays}) AS a ({columns})),
moved AS (UPDATE {schema}.jobs j SET {changes}, frozen_at = NULL FROM asked a WHERE j.id = a.id RETURNING j.id)
INSERT INTO {schema}.jobs ({columns}) SELECT {columns} FROM asked a WHERE NOT EXISTS (
    SELECT FROM {schema}.jobs j WHERE j.id = a.id);

-- name: recount
-- The difference, seen at one moment: what others append meanwhile is right by itself.
INSERT INTO {schema}.counts
SELECT coalesce(c.queue, j.queue), coalesce(c.kind, j.kind), coalesce(c.state, j.state),
       coalesce(j.jobs, 0) - coalesce(c.jobs, 0)
FROM (SELECT queue, kind, state, sum(jobs) AS jobs FROM {schema}.counts GROUP BY queue, kind, state) c
FULL JOIN (SELECT queue, kind, state, count(*) AS jobs FROM {schema}.jobs GROUP BY queue, kind, state) j
    ON j.queue = c.queue AND j.kind = c.kind AND j.state = c.state
WHERE coalesce(c.jobs, 0) <> coalesce(j.jobs, 0);

-- name: heads
-- Of a job whose row is lost while its events are not, there is none.
SELECT a.id::text, j.head FROM unnest(:id::uuid[]) AS a (id)
LEFT JOIN LATERAL (SELECT k.head FROM {schema}.jobs k WHERE k.id = a.id OFFSET 0) j ON true
WHERE j.head IS NOT NULL OR EXISTS (SELECT FROM {schema}.events e WHERE e.job_id = a.id OFFSET 0);

-- name: overdue
-- Jobs whose lease has run out, or whose wait has: locked, but for those that others are busy with. A lease that had
-- run out before whoever asks watched the clock is judged when its owner, should it live, has renewed it or given it up.
-- The clock may jump between his last look and this one: no lease is judged by a later time than he has seen.
WITH clock AS MATERIALIZED (SELECT n.now, least(n.now, :seen::bigint) AS seen
                            FROM (SELECT coalesce(:now::bigint, {schema}.clock()) AS now) n),
leases AS MATERIALIZED (
    SELECT j.id FROM {schema}.jobs j, clock
    WHERE j.token IS NOT NULL AND j.until <= clock.seen AND j.frozen_at IS NULL
      AND (:since::bigint IS NULL OR j.until > :since OR clock.seen - :since >= coalesce(j.lease, {usual_lease}))
    ORDER BY j.id LIMIT :limit FOR UPDATE OF j SKIP LOCKED  -- the order of the index of leases, so that it is read
),
waits AS MATERIALIZED (
    SELECT j.id FROM {schema}.jobs j, clock
    WHERE j.deadline IS NOT NULL AND j.deadline <= clock.now AND j.frozen_at IS NULL
    ORDER BY j.deadline LIMIT :limit FOR UPDATE OF j SKIP LOCKED
)
SELECT id::text, false FROM leases UNION ALL SELECT id::text, true FROM waits LIMIT :limit;

-- name: beat
-- That a worker lives, and when each of its loops last ran.
INSERT INTO {schema}.workers (name, started_at, beat_at, told)
SELECT :name, c.now, c.now, :told FROM (SELECT coalesce(:now::bigint, {schema}.clock()) AS now) c
ON CONFLICT (name) DO UPDATE SET beat_at = excluded.beat_at, told = excluded.told;

-- name: workers
SELECT name, started_at, beat_at, told, coalesce(:now::bigint, {schema}.clock()) FROM {schema}.workers ORDER BY started_at, name;

-- name: forget_workers
-- One that has left, and those that nobody heard of since a day.
DELETE FROM {schema}.workers WHERE name = :name OR beat_at < coalesce(:now::bigint, {schema}.clock()) - 86400000000;
