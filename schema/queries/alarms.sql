-- The writer's statements for events of type alarm, and the notifier's. Those of the writer have the same parameters:
-- $1 time timestamptz[], $2 event id int8[], $3 source_id int[], $4 channel_id int[], $5 condition_key text[] (NULL: of
-- a limit), $6 detail text[].

-- name: upsert_alarms
-- The newest record of each alarm wins, in whatever order they arrive. Rows are locked in the key's order, so that two
-- writers cannot deadlock.
WITH record AS (
    SELECT e.time, e.channel_id, e.detail::jsonb AS detail
    FROM unnest($1::timestamptz[], $2::int8[], $3::int[], $4::int[], $5::text[], $6::text[])
        AS e (time, id, source_id, channel_id, condition_key, detail)
    WHERE e.condition_key IS NULL
),
newest AS (
    SELECT DISTINCT ON (s.channel_id, s.detail ->> 'limit') s.time, s.channel_id, s.detail
    FROM record AS s
    ORDER BY s.channel_id, s.detail ->> 'limit', (s.detail ->> 'revision')::bigint DESC
)
INSERT INTO plant.alarm AS a
    (channel_id, limit_name, state, active, since, value, threshold, priority, acknowledged_by, acknowledged_at,
     shelved_until, who, why, changed_at, revision)
SELECT n.channel_id, n.detail ->> 'limit', n.detail ->> 'state', (n.detail ->> 'active')::boolean,
       timestamptz 'epoch' + (n.detail ->> 'since')::bigint * INTERVAL '1 microsecond',
       (n.detail ->> 'value')::float8, (n.detail ->> 'threshold')::float8, n.detail ->> 'priority',
       n.detail ->> 'acknowledged_by',
       timestamptz 'epoch' + (n.detail ->> 'acknowledged_at')::bigint * INTERVAL '1 microsecond',
       timestamptz 'epoch' + (n.detail ->> 'shelved_until')::bigint * INTERVAL '1 microsecond',
       n.detail ->> 'who', n.detail ->> 'why', n.time, (n.detail ->> 'revision')::bigint
FROM newest AS n
ORDER BY n.channel_id, n.detail ->> 'limit'
ON CONFLICT (channel_id, limit_name) DO UPDATE
SET state = excluded.state, active = excluded.active, since = excluded.since, value = excluded.value,
    threshold = excluded.threshold, priority = excluded.priority, acknowledged_by = excluded.acknowledged_by,
    acknowledged_at = excluded.acknowledged_at, shelved_until = excluded.shelved_until, who = excluded.who,
    why = excluded.why, changed_at = excluded.changed_at, revision = excluded.revision
WHERE a.revision < excluded.revision;

-- name: upsert_conditions
-- As upsert_alarms, for conditions of servers.
WITH record AS (
    SELECT e.time, e.source_id, e.channel_id, e.condition_key, e.detail::jsonb AS detail
    FROM unnest($1::timestamptz[], $2::int8[], $3::int[], $4::int[], $5::text[], $6::text[])
        AS e (time, id, source_id, channel_id, condition_key, detail)
    WHERE e.condition_key IS NOT NULL
),
newest AS (
    SELECT DISTINCT ON (s.source_id, s.condition_key) s.*
    FROM record AS s
    ORDER BY s.source_id, s.condition_key, (s.detail ->> 'revision')::bigint DESC
)
INSERT INTO plant.condition AS k
    (source_id, condition_key, source_name, condition_name, channel_id, state, active, since, priority, severity,
     message, acknowledged_by, acknowledged_at, why, changed_at, revision)
SELECT n.source_id, n.condition_key, coalesce(n.detail ->> 'source_name', 'server'), n.detail ->> 'limit',
       n.channel_id, n.detail ->> 'state', (n.detail ->> 'active')::boolean,
       timestamptz 'epoch' + (n.detail ->> 'since')::bigint * INTERVAL '1 microsecond', n.detail ->> 'priority',
       (n.detail ->> 'severity')::int, coalesce(n.detail ->> 'message', ''), n.detail ->> 'acknowledged_by',
       timestamptz 'epoch' + (n.detail ->> 'acknowledged_at')::bigint * INTERVAL '1 microsecond',
       n.detail ->> 'why', n.time, (n.detail ->> 'revision')::bigint
FROM newest AS n
ORDER BY n.source_id, n.condition_key
ON CONFLICT (source_id, condition_key) DO UPDATE
SET source_name = excluded.source_name, condition_name = excluded.condition_name, channel_id = excluded.channel_id,
    state = excluded.state, active = excluded.active, since = excluded.since, priority = excluded.priority,
    severity = excluded.severity, message = excluded.message, acknowledged_by = excluded.acknowledged_by,
    acknowledged_at = excluded.acknowledged_at, why = excluded.why, changed_at = excluded.changed_at,
    revision = excluded.revision
WHERE k.revision < excluded.revision;

-- name: insert_notices
-- Notices of alarms that begin or end; replaying an event is a no-op. Notices older than a week are deleted.
WITH record AS (
    SELECT e.time, e.id, e.source_id, e.channel_id, e.condition_key, e.detail::jsonb AS detail
    FROM unnest($1::timestamptz[], $2::int8[], $3::int[], $4::int[], $5::text[], $6::text[])
        AS e (time, id, source_id, channel_id, condition_key, detail)
),
old AS (
    SELECT n.event_time, n.event_id
    FROM plant.alarm_notice AS n
    WHERE n.queued_at < now() - INTERVAL '7 days'
    ORDER BY n.queued_at
    LIMIT 1000
    FOR UPDATE SKIP LOCKED
),
deleted AS (
    DELETE FROM plant.alarm_notice AS n
    USING old
    WHERE n.event_time = old.event_time AND n.event_id = old.event_id
)
INSERT INTO plant.alarm_notice
    (event_time, event_id, kind, channel_id, limit_name, priority, value, threshold, late, source_id, condition_key)
SELECT s.time, s.id, CASE WHEN s.detail ->> 'state' = 'unacknowledged_active' THEN 'alarm' ELSE 'return' END,
       s.channel_id, s.detail ->> 'limit', s.detail ->> 'priority', (s.detail ->> 'value')::float8,
       (s.detail ->> 'threshold')::float8, coalesce((s.detail ->> 'late')::boolean, false),
       CASE WHEN s.condition_key IS NOT NULL THEN s.source_id END, s.condition_key
FROM record AS s
WHERE s.detail ->> 'state' = 'unacknowledged_active'
   OR (s.detail ->> 'action' = 'returned'
       AND s.detail ->> 'state' NOT IN ('shelved', 'suppressed_by_design', 'out_of_service'))
ORDER BY s.time, s.id
ON CONFLICT (event_time, event_id) DO NOTHING;

-- name: select_known_alarms
-- Which records are of a state that the tables have, or of one before it: their indices from 0.
WITH record AS (
    SELECT (e.ordinal - 1)::int AS index, e.source_id, e.channel_id, e.condition_key, e.detail::jsonb AS detail
    FROM unnest($1::timestamptz[], $2::int8[], $3::int[], $4::int[], $5::text[], $6::text[])
        WITH ORDINALITY AS e (time, id, source_id, channel_id, condition_key, detail, ordinal)
),
stored AS (
    SELECT s.index, s.detail, a.state, a.active, a.revision
    FROM record AS s
    JOIN plant.alarm AS a ON a.channel_id = s.channel_id AND a.limit_name = s.detail ->> 'limit'
    WHERE s.condition_key IS NULL
    UNION ALL
    SELECT s.index, s.detail, k.state, k.active, k.revision
    FROM record AS s
    JOIN plant.condition AS k ON k.source_id = s.source_id AND k.condition_key = s.condition_key
)
SELECT t.index
FROM stored AS t
WHERE t.revision >= (t.detail ->> 'revision')::bigint
   OR (t.state, t.active) = (t.detail ->> 'state', (t.detail ->> 'active')::boolean);

-- name: lock_notifier
-- One notifier at a time creates messages; the end of the transaction releases the lock.
SELECT pg_advisory_xact_lock(7361023400154);

-- name: select_pending_notices
-- Notices of installation $1 (NULL: all) without an outcome, oldest first, with the alarm's state now; those of alarms
-- that chatter, of which there are many, last. An alarm chatters (ISA-18.2) if it was raised three times within a
-- minute, or more than $3 times in all, in the last $2 seconds.
WITH notice AS (
    SELECT n.*, coalesce(n.source_id || ' ' || n.condition_key, n.channel_id || ' ' || n.limit_name) AS alarm_key
    FROM plant.alarm_notice AS n
    WHERE EXISTS (SELECT FROM plant.alarm_notice AS w WHERE w.outcome IS NULL) -- most of the time there is none
      AND (n.outcome IS NULL OR n.queued_at > clock_timestamp() - $2::float8 * INTERVAL '1 second')
),
ordered AS (
    SELECT n.*, lag(n.event_time, 2) OVER (PARTITION BY n.alarm_key, n.kind ORDER BY n.event_time) AS second_before
    FROM notice AS n
),
judged AS (
    SELECT o.*, max(m.created_at) OVER same AS notified_at,
           count(*) FILTER (WHERE o.kind = 'alarm') OVER same > $3::int
           OR bool_or(o.kind = 'alarm' AND o.event_time - o.second_before <= INTERVAL '1 minute') OVER same AS chatters
    FROM ordered AS o
    LEFT JOIN plant.notification AS m ON m.id = o.notification_id
    WINDOW same AS (PARTITION BY o.alarm_key)
)
SELECT n.event_time AS time, n.event_id, n.queued_at, n.kind, n.alarm_key AS alarm,
       coalesce(k.channel, c.name) AS channel, coalesce(c.unit, '') AS unit, n.limit_name AS "limit", n.priority,
       n.value, n.threshold, n.late,
       coalesce(k.state, a.state, 'normal') AS state_now, plant.unit_of(coalesce(k.channel, c.name)) AS plant_unit,
       k.message, coalesce(n.queued_at < i.notifies_from, false) AS disabled, coalesce(n.chatters, false) AS chatters,
       n.notified_at
FROM judged AS n
LEFT JOIN plant.condition_now AS k ON k.source_id = n.source_id AND k.condition_key = n.condition_key
LEFT JOIN plant.channel AS c ON c.id = n.channel_id
JOIN plant.source AS s ON s.id = coalesce(n.source_id, c.source_id)
LEFT JOIN plant.installation AS i ON i.id = s.installation_id
LEFT JOIN plant.alarm AS a ON a.channel_id = n.channel_id AND a.limit_name = n.limit_name AND n.condition_key IS NULL
WHERE n.outcome IS NULL AND coalesce(s.installation_id = $1::uuid, true)
ORDER BY coalesce(n.chatters, false), n.queued_at, n.event_time, n.event_id
LIMIT 10000;

-- name: select_recent_alarms
-- Alarms sent of those queued within the last $1 seconds, however often they were raised, the time of the last flood
-- message, and the time now; of installation $2 (NULL: all).
SELECT (SELECT count(DISTINCT coalesce(n.source_id || ' ' || n.condition_key, n.channel_id || ' ' || n.limit_name))
        FROM plant.alarm_notice AS n
        JOIN plant.notification AS m ON m.id = n.notification_id
        WHERE n.outcome = 'sent' AND n.kind = 'alarm' AND coalesce(m.installation_id = $2::uuid, true)
          AND n.queued_at > clock_timestamp() - $1::float8 * INTERVAL '1 second')::int AS sent,
       (SELECT max(m.created_at) FROM plant.notification AS m
        WHERE m.kind = 'flood' AND coalesce(m.installation_id = $2::uuid, true)) AS flood_at,
       clock_timestamp() AS now;

-- name: insert_notification
-- A message and its delivery to each receiver: $1 kind, $2 subject, $3 body (JSON), $4 targets text[], $5 installation.
-- Returns its id. Messages older than a year are deleted.
WITH deleted AS (
    DELETE FROM plant.notification AS m WHERE m.created_at < now() - INTERVAL '365 days'
),
inserted AS (
    INSERT INTO plant.notification (kind, subject, body, installation_id) VALUES ($1, $2, $3::jsonb, $5) RETURNING id
),
addressed AS (
    INSERT INTO plant.notification_delivery (notification_id, target)
    SELECT i.id, t.target FROM inserted AS i CROSS JOIN unnest($4::text[]) AS t (target)
)
SELECT i.id FROM inserted AS i;

-- name: update_notices
-- Outcome of notices: $1 event_time timestamptz[], $2 event_id int8[], $3 outcome, $4 notification id (NULL: none).
UPDATE plant.alarm_notice AS n
SET outcome = $3, notification_id = $4
FROM unnest($1::timestamptz[], $2::int8[]) AS d (event_time, event_id)
WHERE n.event_time = d.event_time AND n.event_id = d.event_id;

-- name: select_due_deliveries
-- The oldest messages of installation $3 (NULL: all) due for delivery to $1, at most $2.
SELECT m.id, m.created_at, m.kind, m.subject, m.body::text AS body, d.attempts
FROM plant.notification_delivery AS d
JOIN plant.notification AS m ON m.id = d.notification_id
WHERE d.target = $1
  AND d.delivered_at IS NULL
  AND d.given_up_at IS NULL
  AND d.next_attempt_at <= clock_timestamp()
  AND coalesce(m.installation_id = $3::uuid, true)
ORDER BY m.created_at, m.id
LIMIT $2;

-- name: mark_delivered
-- $1 notification id, $2 target
UPDATE plant.notification_delivery AS d
SET delivered_at = clock_timestamp(), attempts = d.attempts + 1, error = NULL
WHERE d.notification_id = $1 AND d.target = $2;

-- name: mark_failed
-- $1 notification id, $2 target, $3 error, $4 seconds until the next attempt (NULL: give up)
UPDATE plant.notification_delivery AS d
SET attempts = d.attempts + 1, error = $3,
    next_attempt_at = CASE WHEN $4::float8 IS NULL THEN d.next_attempt_at
                           ELSE clock_timestamp() + $4::float8 * INTERVAL '1 second' END,
    given_up_at = CASE WHEN $4::float8 IS NULL THEN clock_timestamp() END
WHERE d.notification_id = $1 AND d.target = $2;

-- name: count_undelivered
-- Undelivered messages of installation $1 (NULL: all) by receiver.
SELECT d.target, count(*)::int AS n
FROM plant.notification_delivery AS d
JOIN plant.notification AS m ON m.id = d.notification_id
WHERE d.delivered_at IS NULL AND d.given_up_at IS NULL AND coalesce(m.installation_id = $1::uuid, true)
GROUP BY d.target;
