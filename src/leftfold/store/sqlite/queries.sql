-- Every query of the SQLite store. `:name` is an argument; a list is the text of a JSON array. `batch` is a table of the
-- rows that a query speaks of: the driver gives it. A query may be several statements: they run in one transaction,
-- which is the only writer there is, and the last one that gives rows gives the answer. No state is named here: those
-- that count come from the lifecycle's table.
--
-- The shape of a write: find the rows, ask the driver to continue their chains, move the rows, append the events. What a
-- query does not give back, it refused: `decide` says why. Names are written when they are missed: such a statement runs
-- only if one behind it found no number for a name, which then is run again.
--
-- What claims and what owners say calls nothing of ours back while it runs, and comes and goes as one text: so a thread
-- that writes leaves the interpreter to the handlers. `AS linked` asks for the hashes of these events, which the statements
-- behind it find as `:heads`, 32 bytes for each. `AS packed` is an answer of many rows, each beginning with an id.

-- part: made
INSERT INTO leftfold_jobs (id, created_at, updated_at, due, lease, version, renewals, attempt, failures, enqueued,
                           state, priority, head, tenant, kind, queue, key, correlation_id)
SELECT id, :now, :now, from_then, lease, 1, 0, 0, 0, 1, {enqueued}, priority, head, tenant, kind, queue, key, correlation_id
FROM batch

-- part: appended
INSERT INTO leftfold_names (name) VALUES ('enqueued'), (:actor) ON CONFLICT DO NOTHING;
INSERT INTO leftfold_events (job, version, at, format, event, actor, request_id, request_hash, data, seal)
SELECT j.n, 1, j.created_at, {format}, (SELECT n FROM leftfold_names WHERE name = 'enqueued'),
       (SELECT n FROM leftfold_names WHERE name = :actor), :request_id, b.request_hash, b.data, substr(b.head, 1, {seal_bytes})
FROM batch b CROSS JOIN leftfold_jobs j ON j.id = b.id

-- part: counted
INSERT INTO leftfold_counts
SELECT j.queue, j.kind, j.state, count(*) FROM batch b CROSS JOIN leftfold_jobs j ON j.id = b.id WHERE true GROUP BY 1, 2, 3
ON CONFLICT DO UPDATE SET jobs = jobs + excluded.jobs

-- name: enqueue
-- Nothing can stand in the way of jobs without keys.
{made};
{appended};
{counted};

-- alone: enqueue
-- In a transaction of our own, which is rolled back whatever goes wrong. So a statement need not be able to undo itself,
-- for which SQLite would copy every page before it writes to it: OR FAIL, and no function is called. Not in somebody
-- else's: where the disk is full, SQLite would roll all of that back.
INSERT OR FAIL INTO leftfold_jobs (id, created_at, updated_at, due, lease, version, renewals, attempt, failures, enqueued,
                                   state, priority, head, tenant, kind, queue, key, correlation_id)
VALUES (:id, :now, :now, :from_then, :lease, 1, 0, 0, 0, 1,
        {enqueued}, :priority, :head, :tenant, :kind, :queue, :key, :correlation_id);
INSERT INTO leftfold_names (name) VALUES ('enqueued'), (:actor) ON CONFLICT DO NOTHING;
INSERT OR FAIL INTO leftfold_events (job, version, at, format, event, actor, request_id, request_hash, data, seal)
VALUES ((SELECT n FROM leftfold_jobs WHERE id = :id), 1, :now, {format},
        (SELECT n FROM leftfold_names WHERE name = 'enqueued'), (SELECT n FROM leftfold_names WHERE name = :actor),
        :request_id, :request_hash, :data, :seal);
INSERT INTO leftfold_counts VALUES (:queue, :kind, {enqueued}, 1) ON CONFLICT DO UPDATE SET jobs = jobs + 1;

-- name: enqueue_sealed
-- Never asked, for in a file nothing is sent ahead; who asks all the same is told that nothing was made.
SELECT json('nothing was made');

-- name: enqueue_keyed
-- A job whose key is taken by a live one is not given back.
{made}
WHERE true
ON CONFLICT (tenant, kind, key) WHERE key IS NOT NULL AND ended_at IS NULL DO NOTHING
RETURNING leftfold_text(id);
{appended};
{counted};

-- name: holders
-- The live jobs that hold these keys.
SELECT leftfold_text(j.id), j.tenant, j.kind, j.key, j.state, j.version, j.renewals, j.attempt
FROM batch b CROSS JOIN leftfold_jobs j  -- in this order, whatever the statistics say
  ON j.tenant = b.tenant AND j.kind = b.kind AND j.key = b.key AND j.ended_at IS NULL;

-- part: lanes
known (queue) AS (
    SELECT min(queue) FROM leftfold_jobs WHERE due IS NOT NULL AND frozen_at IS NULL AND :queues IS NULL
    UNION ALL
    SELECT (SELECT min(j.queue) FROM leftfold_jobs j WHERE j.due IS NOT NULL AND j.frozen_at IS NULL AND j.queue > k.queue)
    FROM known k WHERE k.queue IS NOT NULL
),
wanted (queue) AS (
    SELECT queue FROM (SELECT queue FROM known UNION SELECT value FROM json_each(:queues)) q
    WHERE queue IS NOT NULL AND NOT EXISTS (SELECT 1 FROM leftfold_queues p WHERE p.name = queue AND p.paused_at IS NOT NULL)
),
lanes (queue, priority) AS (
    SELECT w.queue, (SELECT max(j.priority) FROM leftfold_jobs j WHERE j.due IS NOT NULL AND j.frozen_at IS NULL AND j.queue = w.queue) FROM wanted w
    UNION ALL
    SELECT l.queue, (SELECT max(j.priority) FROM leftfold_jobs j
                     WHERE j.due IS NOT NULL AND j.frozen_at IS NULL AND j.queue = l.queue AND j.priority < l.priority)
    FROM lanes l WHERE l.priority IS NOT NULL
)

-- part: given
-- Where each was found ends the row: its place stands for the time when it was due, which the row no longer has.
j.attempt, j.failures, j.until, first.event, first.format, first.data, later.format, later.data,
       j.failures > 0 AND EXISTS (SELECT 1 FROM leftfold_log e WHERE e.job = j.n AND e.event = 'stalled'),
       j.queue, j.priority, picked.place, 0

-- part: given_from
FROM temp.picked CROSS JOIN leftfold_jobs j USING (n)  -- in the order of picked
LEFT JOIN leftfold_log first ON first.job = j.n AND first.version = 1
LEFT JOIN leftfold_log later ON later.job = j.n AND later.version = iif(j.enqueued > 1, j.enqueued, NULL)
WHERE true

-- name: claim
-- A lane is a queue and a priority: its due jobs stand side by side in the index, so jobs that are not due cost
-- nothing. The lanes are found by hopping through the index. `temp.picked` keeps the order in which they were due, and
-- what is to be written of each. A claim that starts its jobs says both in one entry of `:steps` versions.
DELETE FROM temp.picked;
WITH RECURSIVE
{lanes}
INSERT INTO temp.picked (n, at, length, data)
SELECT j.n, max(:now, j.updated_at), coalesce(:lease, j.lease, {usual_lease}),
       '{"token":"' || :token || '"'
       || iif(coalesce(:lease, j.lease, {usual_lease}) <> {usual_lease}, ',"lease":' || coalesce(:lease, j.lease), '') || '}'
FROM lanes, leftfold_jobs j
WHERE lanes.priority IS NOT NULL AND j.n IN (
    SELECT k.n FROM leftfold_jobs k
    WHERE k.queue = lanes.queue AND k.priority = lanes.priority AND k.due <= :now AND k.frozen_at IS NULL
      AND k.state IN (SELECT value FROM json_each(:sources))
      AND (:kinds IS NULL OR k.kind IN (SELECT value FROM json_each(:kinds)))
      AND (:request_id IS NULL OR k.renewed_by IS NOT :request_id)
      AND (:request_id IS NULL OR NOT EXISTS (SELECT 1 FROM leftfold_events e WHERE e.job = k.n AND e.request_id = :request_id))
    ORDER BY k.due, k.id LIMIT :limit)
ORDER BY j.priority DESC, j.due, j.id LIMIT :limit;
SELECT json_group_array(json_array(hex(j.head), hex(j.id), j.version + :steps, p.at, :said, p.data)) AS linked
FROM temp.picked p CROSS JOIN leftfold_jobs j USING (n);
INSERT INTO leftfold_names (name) VALUES (:event), (:owner) ON CONFLICT DO NOTHING;
INSERT INTO leftfold_events (job, version, at, format, event, actor, request_id, request_hash, data, seal)
SELECT j.n, j.version + :steps, p.at, {format}, (SELECT n FROM leftfold_names WHERE name = :event),
       (SELECT n FROM leftfold_names WHERE name = :owner), :request_id, :request_hash, p.data,
       substr(:heads, p.place * 32 - 31, {seal_bytes})
FROM temp.picked p CROSS JOIN leftfold_jobs j USING (n);
UPDATE leftfold_jobs
SET state = :target, version = version + :steps, updated_at = p.at, attempt = attempt + 1,
    head = substr(:heads, p.place * 32 - 31, 32), owner = :owner, token = :token, until = p.at + p.length,
    due = NULL, error = NULL
FROM temp.picked p WHERE leftfold_jobs.n = +p.n;
SELECT json_group_array(json_array(hex(j.id), {given})) AS packed
{given_from} AND :limit <= 1000;
SELECT leftfold_text(j.id), {given}  -- a text of so many large ones could be longer than SQLite allows
{given_from} AND :limit > 1000;

-- name: claim_on
-- Never asked: what was claimed is gone from the index.
SELECT 1;

-- name: next_due
-- How long until a job of these queues becomes due that was not due a moment ago, lane by lane.
WITH RECURSIVE
{lanes}
SELECT min((SELECT min(k.due) FROM leftfold_jobs k
            WHERE k.queue = lanes.queue AND k.priority = lanes.priority AND k.due > :now - :lately AND k.frozen_at IS NULL)) - :now
FROM lanes WHERE lanes.priority IS NOT NULL;

-- name: claims
-- Jobs with what a handler needs of them: the claims of a request that is asked again, or of a claim by id.
SELECT leftfold_text(j.id), j.attempt, j.failures, j.until, first.event, first.format, first.data, later.format, later.data,
       j.failures > 0 AND EXISTS (SELECT 1 FROM leftfold_log e WHERE e.job = j.n AND e.event = 'stalled')
FROM batch b JOIN leftfold_jobs j ON j.id = b.id
JOIN leftfold_log first ON first.job = j.n AND first.version = 1
LEFT JOIN leftfold_log later ON later.job = j.n AND later.version = iif(j.enqueued > 1, j.enqueued, NULL)
ORDER BY b.place;

-- part: owned
DELETE FROM temp.owned;
INSERT OR IGNORE INTO temp.owned (n, event, actor, data, said)
SELECT leftfold_jobs.n, b.event, b.actor, b.data, b.said FROM batch b CROSS JOIN leftfold_jobs
WHERE leftfold_jobs.id = b.id AND leftfold_jobs.attempt = b.attempt AND leftfold_jobs.token = b.token
  AND state IN (SELECT value FROM json_each(:sources)) AND version < :events_max AND frozen_at IS NULL;
SELECT json_group_array(json_array(hex(j.head), hex(j.id), j.version + 1, max(:now, j.updated_at), o.said, o.data)) AS linked
FROM temp.owned o CROSS JOIN leftfold_jobs j ON j.n = o.n;
UPDATE leftfold_jobs
SET state = coalesce(:target, state), version = version + 1, updated_at = max(:now, updated_at),
    head = substr(:heads, o.place * 32 - 31, 32),
    owner = iif(:leased, owner, NULL), token = iif(:leased, token, NULL),
    result = iif(:has_result, version + 1, NULL), ended_at = iif(:ended, max(:now, updated_at), NULL)
FROM temp.owned o WHERE leftfold_jobs.n = +o.n

-- part: told
INSERT INTO leftfold_names (name) SELECT event FROM temp.owned UNION SELECT actor FROM temp.owned WHERE true ON CONFLICT DO NOTHING;
INSERT INTO leftfold_events (job, version, at, format, event, who, actor, data, seal)
SELECT j.n, j.version, j.updated_at, {format}, (SELECT n FROM leftfold_names WHERE name = o.event), :who,
       (SELECT n FROM leftfold_names WHERE name = o.actor), o.data, substr(j.head, 1, {seal_bytes})
FROM temp.owned o CROSS JOIN leftfold_jobs j ON j.n = o.n

-- name: own
-- One event of each owner on each job that it holds in one of `:sources`. `:target` is null where the state stays.
{owned}
RETURNING leftfold_text(id), state, version, renewals, attempt, until, cancel_requested_at;
{told};

-- name: own_quietly
-- The same, and how many they were; which, only if some were refused.
{owned};
{told};
SELECT count(*), iif(count(*) < :asked, (
    SELECT json_group_array(leftfold_text(j.id)) FROM temp.owned o CROSS JOIN leftfold_jobs j ON j.n = o.n), NULL)
FROM temp.owned;

-- name: renew
UPDATE leftfold_jobs
SET until = max(:now + coalesce(:lease, lease, {usual_lease}), until), renewals = renewals + 1, renewed_by = NULL,
    renewed_hash = NULL
FROM batch b
WHERE leftfold_jobs.id = b.id AND leftfold_jobs.attempt = b.attempt AND leftfold_jobs.token = b.token
  AND frozen_at IS NULL
RETURNING leftfold_text(id), state, version, renewals, attempt, until, cancel_requested_at;

-- name: look
-- Where jobs stand that these owners hold.
SELECT leftfold_text(j.id), j.state, j.version, j.renewals, j.attempt, j.until, j.cancel_requested_at, j.token
FROM batch b JOIN leftfold_jobs j ON j.id = b.id AND j.attempt = b.attempt AND j.token = b.token;

-- name: lock
-- Nobody else writes meanwhile: the transaction has begun as a writer.
SELECT leftfold_text(j.id), :now FROM batch b JOIN leftfold_jobs j ON j.id = b.id ORDER BY j.id;

-- name: clock
SELECT :now;

-- name: load
-- The whole log of each job, with what its row knows beside it.
SELECT leftfold_text(j.id), j.head, j.renewals, j.until, j.renewed_by, j.renewed_hash, j.frozen_at, e.version, e.at, e.format, e.event,
       e.who, e.actor, e.request_id, e.request_hash, e.data, e.seal
FROM batch b JOIN leftfold_jobs j ON j.id = b.id LEFT JOIN leftfold_log e ON e.job = j.n
ORDER BY j.id, e.version;

-- name: append
INSERT INTO leftfold_names (name) SELECT event FROM batch UNION SELECT actor FROM batch WHERE true ON CONFLICT DO NOTHING;
INSERT INTO leftfold_events (job, version, at, format, event, who, actor, request_id, request_hash, data, seal)
SELECT j.n, b.version, b.at, b.format, (SELECT n FROM leftfold_names WHERE name = b.event), b.who,
       (SELECT n FROM leftfold_names WHERE name = b.actor), b.request_id, b.request_hash, b.data, b.seal
FROM batch b JOIN leftfold_jobs j ON j.id = b.job_id
ORDER BY b.place;

-- name: insert
-- New rows as they are given. One whose key is taken by a live job is not given back.
INSERT INTO leftfold_jobs ({columns})
SELECT {columns} FROM batch WHERE true
ON CONFLICT (tenant, kind, key) WHERE key IS NOT NULL AND ended_at IS NULL DO NOTHING
RETURNING leftfold_text(id);
{counted};

-- name: project
-- Rows that follow their log, each from the version that it was decided on.
UPDATE leftfold_jobs SET {changes}
FROM batch b
WHERE leftfold_jobs.id = b.id AND leftfold_jobs.version = b.before
RETURNING leftfold_text(id);

-- name: await_request
-- There is one writer at a time.
SELECT 1 WHERE :tenant || :request_id IS NULL;

-- name: recall
SELECT request_hash, response FROM leftfold_requests WHERE tenant = :tenant AND request_id = :request_id;

-- name: remember
-- Nothing comes back if the request was remembered meanwhile.
INSERT INTO leftfold_requests (tenant, request_id, request_hash, at, response)
VALUES (:tenant, :request_id, :request_hash, :now, :response)
ON CONFLICT DO NOTHING RETURNING request_id;

-- name: states
SELECT leftfold_text(j.id), j.state FROM batch b JOIN leftfold_jobs j ON j.id = b.id;

-- name: list
-- Newest first. An argument that is null asks for nothing: the driver leaves its line out, which the planner would not.
-- Jobs that are leased, wait or have an error are few, and have an index of their own.
SELECT leftfold_text(id), {summary}
FROM leftfold_jobs
WHERE true
  AND (:before IS NULL OR id < leftfold_id(:before))
  AND (:states IS NULL OR state IN (SELECT value FROM json_each(:states)))
  AND (:leased IS NULL OR token IS NOT NULL)
  AND (:waits IS NULL OR wait IS NOT NULL)
  AND (:erred IS NULL OR error IS NOT NULL)
  AND (:queue IS NULL OR queue = :queue)
  AND (:kind IS NULL OR kind = :kind)
  AND (:tenant IS NULL OR tenant = :tenant)
  AND (:key IS NULL OR key = :key)
  AND (:correlation_id IS NULL OR correlation_id = :correlation_id)
  AND (:owner IS NULL OR owner = :owner)
  AND (:incident IS NULL OR incident = :incident)
  AND (:resolved IS NULL OR (resolved_at IS NOT NULL) = :resolved)
  AND (:ids IS NULL OR id IN (SELECT leftfold_id(value) FROM json_each(:ids)))
ORDER BY id DESC LIMIT :limit;

-- name: incidents
-- Dead letters by what went wrong, the last one seen first. Why, tells the newest of them: it is the same for all. Those
-- that are frozen are for `verify` to speak of.
SELECT g.incident, g.kind, g.open, g.resolved, g.first_at, g.last_at,
       (SELECT leftfold_text(j.id) FROM leftfold_jobs j WHERE j.incident = g.incident AND j.frozen_at IS NULL
          AND (:queue IS NULL OR j.queue = :queue)
          AND (:kind IS NULL OR j.kind = :kind)
          AND (:tenant IS NULL OR j.tenant = :tenant)
        ORDER BY j.ended_at, j.id LIMIT 1),
       leftfold_text(newest.id), e.event, e.format, e.data
FROM (
    SELECT incident, min(kind) AS kind, count(*) - count(resolved_at) AS open, count(resolved_at) AS resolved,
           min(ended_at) AS first_at, max(ended_at) AS last_at
    FROM leftfold_jobs
    WHERE incident IS NOT NULL AND frozen_at IS NULL
      AND (:beginning IS NULL OR (incident >= :beginning AND incident < :beginning || 'g'))
      AND (:queue IS NULL OR queue = :queue)
      AND (:kind IS NULL OR kind = :kind)
      AND (:tenant IS NULL OR tenant = :tenant)
    GROUP BY incident
    HAVING true
      AND (:is_open IS NULL OR (count(*) > count(resolved_at)) = :is_open)
      AND (:after IS NULL OR (max(ended_at), incident) < (:after_at, :after))
    ORDER BY max(ended_at) DESC, incident DESC LIMIT :limit
) g
JOIN leftfold_jobs newest ON newest.n = (
    SELECT j.n FROM leftfold_jobs j WHERE j.incident = g.incident AND j.frozen_at IS NULL
      AND (:queue IS NULL OR j.queue = :queue)
      AND (:kind IS NULL OR j.kind = :kind)
      AND (:tenant IS NULL OR j.tenant = :tenant)
    ORDER BY j.ended_at DESC, j.id DESC LIMIT 1)
LEFT JOIN leftfold_log e ON e.job = newest.n AND e.version = newest.error
ORDER BY g.last_at DESC, g.incident DESC;

-- name: find
-- Ids that begin so: two of them mean that the beginning is too short.
SELECT leftfold_text(id) FROM leftfold_jobs WHERE id BETWEEN leftfold_id(:low) AND leftfold_id(:high) ORDER BY id LIMIT 2;

-- name: counts
SELECT queue, kind, state, jobs FROM leftfold_counts WHERE jobs <> 0;

-- name: fold_counts
-- Never asked: there is one row already.
SELECT 1;

-- name: queues
SELECT q.name, p.paused_at, p.paused_by, p.reason
FROM (SELECT DISTINCT queue AS name FROM leftfold_counts UNION SELECT name FROM leftfold_queues) q
LEFT JOIN leftfold_queues p ON p.name = q.name;

-- name: pause
-- A queue that is paused already stays as it was paused.
INSERT INTO leftfold_queues (name, paused_at, paused_by, reason) VALUES (:name, :now, :actor, :reason)
ON CONFLICT (name) DO UPDATE SET paused_at = excluded.paused_at, paused_by = excluded.paused_by, reason = excluded.reason
WHERE paused_at IS NULL RETURNING name;

-- name: paused
-- The paused queues of these jobs.
SELECT p.name FROM batch b JOIN leftfold_jobs j ON j.id = b.id JOIN leftfold_queues p ON p.name = j.queue
WHERE p.paused_at IS NOT NULL;

-- name: unpause
UPDATE leftfold_queues SET paused_at = NULL, paused_by = NULL, reason = NULL
WHERE name = :name AND paused_at IS NOT NULL RETURNING name;

-- name: feed_cursor
-- Where a consumer stands, and what is committed by now, but no more than one page from the next event on. A row number
-- is a snapshot as well: all below it are seen.
SELECT c.rev, c.seen, c.target, printf('%d:%d:', min(c.last, c.next + :limit), min(c.last, c.next + :limit)),
       c.at, c.job_id, c.version, c.last <= c.next + :limit, 0
FROM (
    SELECT coalesce(f.rev, 0) AS rev, coalesce(f.seen, '1:1:') AS seen, f.target, f.at, f.job_id, f.version, last.n AS last,
           coalesce((SELECT min(seq) FROM leftfold_events WHERE seq >= coalesce(CAST(f.seen AS INTEGER), 1)), last.n) AS next
    FROM (SELECT coalesce(max(seq), 0) + 1 AS n FROM leftfold_events) last
    LEFT JOIN leftfold_feeds f ON f.consumer = :consumer
) c;

-- name: feed_stretch
-- A page is short enough.
SELECT 0, NULL WHERE :from + :to + :at + :rows + json_array_length(:missed) IS NOT NULL;

-- name: feed_page
-- What the target shows and the consumer has not seen.
SELECT leftfold_text(j.id), e.version, e.at, e.format, e.event, e.who, e.actor, e.request_id, e.request_hash, e.data
FROM leftfold_log e JOIN leftfold_jobs j ON j.n = e.job
WHERE e.seq >= :from AND e.seq < :to AND e.at >= :at AND json_array_length(:missed) + json_array_length(:open) = 0
  AND (e.at, j.id, e.version) > (:at, leftfold_id(:job_id), :version) AND e.seq < :low
  AND (:until IS NULL OR e.at <= :until)
ORDER BY e.at, j.id, e.version LIMIT :limit;

-- name: feed_begin
-- The time is its first rev: a page of a namesake that was forgotten has another one.
INSERT INTO leftfold_feeds (consumer, rev, seen, started_at, moved_at) VALUES (:consumer, :now, :seen, :now, :now)
ON CONFLICT DO NOTHING RETURNING rev;

-- name: feed_move
-- Nothing comes back if somebody else moved it meanwhile.
UPDATE leftfold_feeds
SET rev = rev + 1, seen = :seen, target = :target, at = :at, job_id = :job_id, version = :version, moved_at = :now
WHERE consumer = :consumer AND rev = :rev RETURNING consumer;

-- name: feed_forget
DELETE FROM leftfold_feeds WHERE consumer = :consumer RETURNING consumer;

-- part: unseen
FROM leftfold_events e
WHERE e.seq >= CAST(f.seen AS INTEGER)
  AND (f.target IS NULL OR e.seq >= CAST(f.target AS INTEGER)
       OR (e.at, (SELECT id FROM leftfold_jobs WHERE n = e.job), e.version)
          > (f.at, leftfold_id(coalesce(f.job_id, '')), f.version))

-- name: feeds
SELECT f.consumer, f.started_at, f.moved_at,
       (SELECT min(coalesce(sum(events), 0), :most) FROM (
           SELECT iif(e.event = (SELECT n FROM leftfold_names WHERE name = {together})
                      AND (f.at, leftfold_id(coalesce(f.job_id, '')), f.version)
                          IS NOT (e.at, (SELECT id FROM leftfold_jobs WHERE n = e.job), e.version - 1), 2, 1) AS events
           {unseen} LIMIT :most)),
       (SELECT e.at {unseen} ORDER BY e.seq LIMIT 1)
FROM leftfold_feeds f;

-- name: audit
-- Jobs in the order of ids, each with its row and its log, as both stood at one moment.
WITH page AS (
    SELECT * FROM leftfold_jobs
    WHERE true
      AND (:after IS NULL OR id > leftfold_id(:after))
      AND (:ids IS NULL OR id IN (SELECT leftfold_id(value) FROM json_each(:ids)))
      AND (:since IS NULL OR updated_at >= :since)
      AND (:states IS NULL OR state IN (SELECT value FROM json_each(:states)))
      AND (:queue IS NULL OR queue = :queue)
      AND (:kind IS NULL OR kind = :kind)
      AND (:tenant IS NULL OR tenant = :tenant)
    ORDER BY id LIMIT :limit
)
SELECT leftfold_text(p.id), {row}, p.frozen_at, e.version, e.at, e.format, e.event, e.who, e.actor, e.request_id,
       e.request_hash, e.data, e.seal
FROM page p LEFT JOIN leftfold_log e ON e.job = p.n
ORDER BY p.id, e.version;

-- name: audit_counts
-- A GROUP BY would sort all jobs in memory.
WITH there (queue, kind, state, jobs) AS (
    SELECT CAST(leftfold_from_hex(json_extract(value, '$[0]')) AS TEXT), CAST(leftfold_from_hex(json_extract(value, '$[1]')) AS TEXT),
           CAST(leftfold_from_hex(json_extract(value, '$[2]')) AS TEXT), json_extract(value, '$[3]')
    FROM json_each((SELECT leftfold_tally(CAST(queue AS BLOB), CAST(kind AS BLOB), CAST(state AS BLOB)) FROM leftfold_jobs))
)
SELECT c.queue, c.kind, c.state, c.jobs, coalesce(t.jobs, 0) FROM leftfold_counts c
LEFT JOIN there t ON t.queue = c.queue AND t.kind = c.kind AND t.state = c.state
WHERE c.jobs <> coalesce(t.jobs, 0)
UNION ALL
SELECT t.queue, t.kind, t.state, 0, t.jobs FROM there t
WHERE NOT EXISTS (SELECT 1 FROM leftfold_counts c WHERE c.queue = t.queue AND c.kind = t.kind AND c.state = t.state);

-- name: audit_keyed
SELECT count(*) FROM leftfold_jobs NOT INDEXED WHERE key IS NOT NULL AND ended_at IS NULL;

-- name: audit_keys
-- Not by the index that would have to be broken. Some of the keys at a time: they are sorted in memory.
SELECT tenant, kind, key, count(*) FROM leftfold_jobs NOT INDEXED
WHERE key IS NOT NULL AND ended_at IS NULL AND leftfold_checksum(CAST(key AS BLOB)) % :parts = :part
GROUP BY tenant, kind, key HAVING count(*) > 1;

-- name: audit_orphans
-- The id is lost with the row; its number is not.
SELECT 'number ' || e.job, count(*) + count(CASE WHEN e.event = (SELECT n FROM leftfold_names WHERE name = {together}) THEN 1 END)
FROM leftfold_events e
WHERE NOT EXISTS (SELECT 1 FROM leftfold_jobs j WHERE j.n = e.job)
GROUP BY e.job ORDER BY e.job LIMIT :limit;

-- name: begin_maintenance
INSERT INTO leftfold_maintenance (at, actor, reason, open) VALUES (:now, :actor, :reason, 1);

-- name: end_maintenance
UPDATE leftfold_maintenance SET open = 0 WHERE open;

-- name: freeze
UPDATE leftfold_jobs SET frozen_at = :now WHERE id IN (SELECT id FROM batch);

-- name: restore
-- Rows as their logs say. The counters follow by themselves, or are counted anew behind that.
UPDATE leftfold_jobs SET {changes}, frozen_at = NULL FROM batch b WHERE leftfold_jobs.id = b.id;

-- name: recount
DELETE FROM leftfold_counts;
INSERT INTO leftfold_counts SELECT queue, kind, state, count(*) FROM leftfold_jobs GROUP BY queue, kind, state;

-- name: heads
SELECT leftfold_text(j.id), j.head FROM batch b JOIN leftfold_jobs j ON j.id = b.id;

-- name: overdue
-- Jobs whose lease has run out, or whose wait has. A lease that had run out before whoever asks watched the clock is
-- judged when its owner, should it live, has renewed it or given it up. The clock may jump between his last look and
-- this one: no lease is judged by a later time than he has seen.
SELECT leftfold_text(id), 0 FROM leftfold_jobs
WHERE token IS NOT NULL AND until <= min(:now, coalesce(:seen, :now)) AND frozen_at IS NULL
  AND (:since IS NULL OR until > :since OR min(:now, :seen) - :since >= coalesce(lease, {usual_lease}))
UNION ALL
SELECT leftfold_text(id), 1 FROM leftfold_jobs WHERE deadline IS NOT NULL AND deadline <= :now AND frozen_at IS NULL
LIMIT :limit;

-- name: beat
-- That a worker lives, and when each of its loops last ran.
INSERT INTO leftfold_workers (name, started_at, beat_at, told) VALUES (:name, :now, :now, :told)
ON CONFLICT (name) DO UPDATE SET beat_at = excluded.beat_at, told = excluded.told;

-- name: workers
SELECT name, started_at, beat_at, told, :now FROM leftfold_workers ORDER BY started_at, name;

-- name: forget_workers
-- One that has left, and those that nobody heard of since a day.
DELETE FROM leftfold_workers WHERE name = :name OR beat_at < :now - 86400000000;
