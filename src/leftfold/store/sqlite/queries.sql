-- Every query of the SQLite store. `:name` is an argument; `:rows` is a batch, as a JSON list of lists. A query may be
-- several statements: they run in one transaction, which is the only writer there is, and the last one that gives
-- rows gives the answer. No state is named here: those that count come from the lifecycle's table.
--
-- The shape of a write: move the rows, sealing each into its chain, then append the events that they are ahead of
-- their logs by. What a query does not give back, it refused: `decide` says why.

-- name: enqueue
-- A job whose key is taken by a live one is not given back.
INSERT INTO jobs (id, created_at, updated_at, due, lease, version, renewals, attempt, failures, enqueued,
                  state, priority, head, tenant, kind, queue, key, correlation_id)
SELECT id, :now, :now, from_then, lease, 1, 0, 0, 0, 1, {enqueued}, priority,
       leftfold_link(:genesis, id, 1, :now, 'enqueued', :format, 'client', :actor, :request_id, request_hash,
            '{"due":' || from_then || rest),
       tenant, kind, queue, key, correlation_id
FROM (SELECT value ->> 0 AS id, value ->> 1 AS tenant, value ->> 2 AS kind, value ->> 3 AS queue, value ->> 4 AS priority,
             value ->> 5 AS key, value ->> 6 AS correlation_id,
             max(coalesce(value ->> 7, :now + (value ->> 8), :now), :now) AS from_then, value ->> 9 AS lease,
             value ->> 10 AS rest, value ->> 11 AS request_hash
      FROM json_each(:rows))
WHERE true
ON CONFLICT (tenant, kind, key) WHERE key IS NOT NULL AND ended_at IS NULL DO NOTHING
RETURNING id;
INSERT INTO events (job, version, at, format, event, who, actor, request_id, request_hash, data, hash)
SELECT j.n, 1, j.created_at, :format, 'enqueued', 'client', :actor, :request_id, value ->> 11,
       '{"due":' || j.due || (value ->> 10), j.head
FROM json_each(:rows) JOIN jobs j ON j.id = value ->> 0;

-- name: holders
-- The live jobs that hold these keys.
SELECT j.id, j.tenant, j.kind, j.key, j.state, j.version, j.renewals, j.attempt
FROM json_each(:rows) JOIN jobs j
  ON j.tenant = value ->> 0 AND j.kind = value ->> 1 AND j.key = value ->> 2 AND j.ended_at IS NULL;

-- name: claim
-- A lane is a queue and a priority: its due jobs stand side by side in the index, so jobs that are not due cost
-- nothing. The lanes are found by hopping through the index. `temp.picked` keeps the order in which they were due.
DELETE FROM temp.picked;
WITH RECURSIVE
known (queue) AS (
    SELECT min(queue) FROM jobs WHERE due IS NOT NULL AND :queues IS NULL
    UNION ALL
    SELECT (SELECT min(j.queue) FROM jobs j WHERE j.due IS NOT NULL AND j.queue > k.queue)
    FROM known k WHERE k.queue IS NOT NULL
),
wanted (queue) AS (
    SELECT queue FROM (SELECT queue FROM known UNION SELECT value FROM json_each(:queues)) q
    WHERE queue IS NOT NULL AND NOT EXISTS (SELECT 1 FROM queues p WHERE p.name = queue AND p.paused_at IS NOT NULL)
),
lanes (queue, priority) AS (
    SELECT w.queue, (SELECT max(j.priority) FROM jobs j WHERE j.due IS NOT NULL AND j.queue = w.queue) FROM wanted w
    UNION ALL
    SELECT l.queue, (SELECT max(j.priority) FROM jobs j
                     WHERE j.due IS NOT NULL AND j.queue = l.queue AND j.priority < l.priority)
    FROM lanes l WHERE l.priority IS NOT NULL
)
INSERT INTO temp.picked (n)
SELECT j.n FROM lanes, jobs j
WHERE lanes.priority IS NOT NULL AND j.n IN (
    SELECT k.n FROM jobs k
    WHERE k.queue = lanes.queue AND k.priority = lanes.priority AND k.due <= :now AND k.state IN (SELECT value FROM json_each(:sources))
      AND (:kinds IS NULL OR k.kind IN (SELECT value FROM json_each(:kinds)))
      AND (:request_id IS NULL OR k.renewed_by IS NOT :request_id)
      AND (:request_id IS NULL OR NOT EXISTS (SELECT 1 FROM events e WHERE e.job = k.n AND e.request_id = :request_id))
    ORDER BY k.due, k.id LIMIT :limit)
ORDER BY j.priority DESC, j.due, j.id LIMIT :limit;
UPDATE jobs
SET state = {claimed}, version = version + 1, updated_at = max(:now, updated_at), attempt = attempt + 1,
    head = leftfold_link(head, id, version + 1, max(:now, updated_at), 'claimed', :format, 'worker', :owner, :request_id,
                :request_hash, '{"owner":' || :owner_json || ',"token":"' || :token || '","lease":'
                || coalesce(:lease, lease) || '}'),
    owner = :owner, token = :token, until = max(:now, updated_at) + coalesce(:lease, lease), due = NULL, error = NULL
WHERE n IN (SELECT n FROM temp.picked);
INSERT INTO events (job, version, at, format, event, who, actor, request_id, request_hash, data, hash)
SELECT j.n, j.version, j.updated_at, :format, 'claimed', 'worker', :owner, :request_id, :request_hash,
       '{"owner":' || :owner_json || ',"token":"' || :token || '","lease":' || (j.until - j.updated_at) || '}', j.head
FROM temp.picked JOIN jobs j USING (n);
SELECT j.id, j.attempt, j.failures, j.until, first.event, first.format, first.data, later.format, later.data
FROM temp.picked JOIN jobs j USING (n)
JOIN events first ON first.job = j.n AND first.version = 1
LEFT JOIN events later ON later.job = j.n AND later.version = j.enqueued AND j.enqueued > 1
ORDER BY picked.place;

-- name: claims
-- Jobs with what a handler needs of them: the claims of a request that is asked again, or of a claim by id.
SELECT j.id, j.attempt, j.failures, j.until, first.event, first.format, first.data, later.format, later.data
FROM json_each(:rows) JOIN jobs j ON j.id = value ->> 0
JOIN events first ON first.job = j.n AND first.version = 1
LEFT JOIN events later ON later.job = j.n AND later.version = j.enqueued AND j.enqueued > 1
ORDER BY json_each.key;

-- name: own
-- One event of each owner on each job that it holds in one of `:sources`. `:target` is null where the state stays.
UPDATE jobs
SET state = coalesce(:target, state), version = version + 1, updated_at = max(:now, updated_at),
    head = leftfold_link(head, id, version + 1, max(:now, updated_at), a.event, :format, 'owner', a.actor, NULL, NULL, a.data),
    owner = CASE WHEN :leased THEN owner END, token = CASE WHEN :leased THEN token END,
    result = CASE WHEN :has_result THEN version + 1 END,
    ended_at = CASE WHEN :ended THEN max(:now, updated_at) END
FROM (SELECT value ->> 0 AS job_id, value ->> 1 AS held_attempt, value ->> 2 AS held_token, value ->> 3 AS actor,
             value ->> 4 AS event, value ->> 5 AS data
      FROM json_each(:rows)) a
WHERE id = a.job_id AND attempt = a.held_attempt AND token = a.held_token
  AND state IN (SELECT value FROM json_each(:sources)) AND version < :events_max
RETURNING id, state, version, renewals, attempt, until, cancel_requested_at;
INSERT INTO events (job, version, at, format, event, who, actor, data, hash)
SELECT j.n, j.version, j.updated_at, :format, value ->> 4, 'owner', value ->> 3, value ->> 5, j.head
FROM json_each(:rows) JOIN jobs j ON j.id = value ->> 0
WHERE NOT EXISTS (SELECT 1 FROM events e WHERE e.job = j.n AND e.version = j.version);

-- name: renew
UPDATE jobs
SET until = max(:now + coalesce(:lease, lease), until), renewals = renewals + 1, renewed_by = NULL, renewed_hash = NULL
FROM (SELECT value ->> 0 AS job_id, value ->> 1 AS held_attempt, value ->> 2 AS held_token FROM json_each(:rows)) a
WHERE id = a.job_id AND attempt = a.held_attempt AND token = a.held_token
RETURNING id, state, version, renewals, attempt, until, cancel_requested_at;

-- name: lock
-- Nobody else writes meanwhile: the transaction has begun as a writer.
SELECT j.id, :now FROM json_each(:rows) JOIN jobs j ON j.id = value ->> 0 ORDER BY j.id;

-- name: clock
SELECT :now;

-- name: load
-- The whole log of each job, with what its row knows beside it.
SELECT j.id, j.head, j.renewals, j.until, j.renewed_by, j.renewed_hash, e.version, e.at, e.format, e.event,
       e.who, e.actor, e.request_id, e.request_hash, e.data, e.hash
FROM json_each(:rows) JOIN jobs j ON j.id = value ->> 0 LEFT JOIN events e ON e.job = j.n
ORDER BY j.id, e.version;

-- name: append
INSERT INTO events (job, version, at, format, event, who, actor, request_id, request_hash, data, hash)
SELECT j.n, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5, value ->> 6, value ->> 7, value ->> 8,
       value ->> 9, leftfold_from_hex(value ->> 10)
FROM json_each(:rows) JOIN jobs j ON j.id = value ->> 0
ORDER BY json_each.key;

-- name: insert
-- New rows as they are given. One whose key is taken by a live job is not given back.
INSERT INTO jobs ({columns})
SELECT {values} FROM json_each(:rows) WHERE true
ON CONFLICT (tenant, kind, key) WHERE key IS NOT NULL AND ended_at IS NULL DO NOTHING
RETURNING id;

-- name: project
-- Rows that follow their log, each from the version that it was decided on.
UPDATE jobs SET {changes}
FROM (SELECT value FROM json_each(:rows)) a
WHERE id = value ->> 1 AND version = value ->> 0
RETURNING id;

-- name: await_request
-- There is one writer at a time.
SELECT 1 WHERE :tenant || :request_id IS NULL;

-- name: recall
SELECT request_hash, response FROM requests WHERE tenant = :tenant AND request_id = :request_id;

-- name: remember
-- Nothing comes back if the request was remembered meanwhile.
INSERT INTO requests (tenant, request_id, request_hash, at, response)
VALUES (:tenant, :request_id, :request_hash, :now, :response)
ON CONFLICT DO NOTHING RETURNING request_id;

-- name: states
SELECT j.id, j.state FROM json_each(:rows) JOIN jobs j ON j.id = value ->> 0;

-- name: list
-- Newest first. An argument that is null asks for nothing: the driver leaves its line out, which the planner would not.
SELECT id, {summary}
FROM jobs
WHERE true
  AND (:before IS NULL OR id < :before)
  AND (:states IS NULL OR state IN (SELECT value FROM json_each(:states)))
  AND (:queue IS NULL OR queue = :queue)
  AND (:kind IS NULL OR kind = :kind)
  AND (:tenant IS NULL OR tenant = :tenant)
  AND (:key IS NULL OR key = :key)
  AND (:correlation_id IS NULL OR correlation_id = :correlation_id)
  AND (:owner IS NULL OR owner = :owner)
ORDER BY id DESC LIMIT :limit;

-- name: find
-- Ids that begin so: two of them mean that the beginning is too short.
SELECT id FROM jobs WHERE id BETWEEN :low AND :high ORDER BY id LIMIT 2;

-- name: counts
SELECT queue, kind, state, jobs FROM counts WHERE jobs <> 0;

-- name: fold_counts
-- Never asked: there is one row already.
SELECT 1;

-- name: queues
SELECT q.name, p.paused_at, p.paused_by, p.reason
FROM (SELECT DISTINCT queue AS name FROM counts UNION SELECT name FROM queues) q
LEFT JOIN queues p ON p.name = q.name;

-- name: pause
-- A queue that is paused already stays as it was paused.
INSERT INTO queues (name, paused_at, paused_by, reason) VALUES (:name, :now, :actor, :reason)
ON CONFLICT (name) DO UPDATE SET paused_at = excluded.paused_at, paused_by = excluded.paused_by, reason = excluded.reason
WHERE paused_at IS NULL RETURNING name;

-- name: paused
-- The paused queues of these jobs.
SELECT p.name FROM json_each(:rows) JOIN jobs j ON j.id = value ->> 0 JOIN queues p ON p.name = j.queue
WHERE p.paused_at IS NOT NULL;

-- name: unpause
UPDATE queues SET paused_at = NULL, paused_by = NULL, reason = NULL
WHERE name = :name AND paused_at IS NOT NULL RETURNING name;
