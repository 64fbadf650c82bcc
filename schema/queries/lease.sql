-- The lease of a redundant pair, and what its standby asks.

-- name: insert_lease
-- $1 installation, $2 member; expired, so that the first one takes it.
INSERT INTO plant.writer_lease (installation_id, member, token, expires_at)
VALUES ($1, $2, 0, clock_timestamp() - INTERVAL '1 second')
ON CONFLICT (installation_id) DO NOTHING;

-- name: select_lease
-- $1 installation. Times in seconds.
SELECT l.member, l.token, l.expires_at < clock_timestamp() AS expired, l.backlog_seconds,
       date_part('epoch', clock_timestamp() - l.taken_at) AS seconds_since_taken
FROM plant.writer_lease AS l
WHERE l.installation_id = $1;

-- name: take_lease
-- $1 installation, $2 member, $3 seconds, $4 the highest token that the member knows. An expired lease, or a former
-- process's of the same member. FOR UPDATE waits for transactions of the former holder, and UPDATE alone would not.
WITH free AS (
    SELECT l.installation_id, l.member
    FROM plant.writer_lease AS l
    WHERE l.installation_id = $1 AND (l.expires_at < clock_timestamp() OR l.member = $2)
    FOR UPDATE
)
UPDATE plant.writer_lease AS l
SET member = $2, token = greatest(l.token, $4) + 1, taken_at = clock_timestamp(), wanted = false, backlog_seconds = 0,
    expires_at = clock_timestamp() + INTERVAL '1 second' * $3::float8
FROM free
WHERE l.installation_id = free.installation_id
RETURNING l.token, free.member AS former;

-- name: renew_lease
-- $1 installation, $2 token, $3 seconds, $4 backlog_seconds. No row: the other member has taken over.
UPDATE plant.writer_lease AS l
SET expires_at = clock_timestamp() + INTERVAL '1 second' * $3::float8, backlog_seconds = $4
WHERE l.installation_id = $1 AND l.token = $2
RETURNING l.wanted;

-- name: release_lease
-- $1 installation, $2 token.
UPDATE plant.writer_lease AS l SET expires_at = clock_timestamp() - INTERVAL '1 second'
WHERE l.installation_id = $1 AND l.token = $2;

-- name: want_lease
-- $1 installation, $2 token of the holder.
UPDATE plant.writer_lease AS l SET wanted = true WHERE l.installation_id = $1 AND l.token = $2 AND NOT l.wanted;

-- name: lock_lease
-- $1 installation, $2 token. No row: another member or process writes.
SELECT FROM plant.writer_lease AS l WHERE l.installation_id = $1 AND l.token = $2 FOR KEY SHARE;

-- name: member_seen
-- $1 installation, $2 member, $3 identity of its state folder, $4 rows in its spools, $5 sources int[] that it received
-- samples of. away: the other member is; before: when this one was seen before (µs), by the clock that says now.
SELECT plant.member_seen($1, $2, $3, $4, $5) AS away, left(pg_walfile_name(pg_current_wal_lsn()), 8) AS timeline,
       (SELECT (extract(epoch FROM m.seen_at) * 1000000)::int8 FROM plant.member AS m
        WHERE m.installation_id = $1 AND m.member = $2) AS before,
       (extract(epoch FROM clock_timestamp()) * 1000000)::int8 AS now;

-- name: record_take_over
-- An event: member $2 of installation $1 writes instead of member $3, with token $4.
INSERT INTO plant.event (time, id, type, text, detail)
SELECT t.at, hashtextextended(concat_ws(' ', t.at, $1::uuid, $4::bigint), 0) & 9223372036854775807, 'lease_taken',
       format('member %s writes instead of member %s', $2::int, $3::int),
       jsonb_build_object('installation', $1, 'member', $2, 'former', $3, 'token', $4)
FROM (SELECT clock_timestamp()) AS t (at);

-- name: end_sessions
-- Ends the sessions of this login whose names begin with $1: a holder that sleeps may hold locks. false:
-- some are still there.
SELECT coalesce(bool_and(pg_terminate_backend(a.pid, 1000)), true)
FROM pg_stat_activity AS a
WHERE a.datname = current_database() AND a.usename = session_user AND starts_with(a.application_name, $1);

-- name: select_missing_samples
-- Which batches have samples that are not in the table with the same value and status: $1 batch, $2 channel_id int[],
-- $3 time int8[] (µs), $4 value float8[], $5 status int[] of each sample; $6 channel_id int[], $7 first, $8 last time
-- timestamptz[] of each channel; $9, $10: first and last time of all. One range of the index a channel: looking up each
-- sample takes twice as long. float8send compares bits.
SELECT DISTINCT unnest(missing.batches) AS batch
FROM (
    SELECT array_agg(b.batch) AS batches
    FROM (
        SELECT s.batch, s.channel_id, TIMESTAMPTZ 'epoch' + s.time * INTERVAL '1 microsecond' AS time, s.value, s.status
        FROM unnest($1::int[], $2::int[], $3::int8[], $4::float8[], $5::int[])
            AS s (batch, channel_id, time, value, status)
        UNION ALL
        SELECT NULL, c.channel_id, r.time, r.value, r.status
        FROM unnest($6::int[], $7::timestamptz[], $8::timestamptz[]) AS c (channel_id, first, last)
        CROSS JOIN LATERAL (
            SELECT r.time, r.value, r.status
            FROM plant.samples_raw AS r
            WHERE r.channel_id = c.channel_id AND r.time BETWEEN c.first AND c.last AND r.time BETWEEN $9 AND $10
            OFFSET 0
        ) AS r
    ) AS b
    GROUP BY b.channel_id, b.time, float8send(b.value), b.status
    HAVING bool_and(b.batch IS NOT NULL)
) AS missing;

-- name: select_events
-- Which of the events $1 time timestamptz[], $2 id int8[] are in the table, by their indices from 0. $3 to $4:
-- their times.
SELECT (e.ordinal - 1)::int AS index
FROM unnest($1::timestamptz[], $2::int8[]) WITH ORDINALITY AS e (time, id, ordinal)
JOIN plant.event AS v ON v.time = e.time AND v.id = e.id AND v.time BETWEEN $3 AND $4;

-- name: select_newest_samples
-- The newest sample of each of the channels $1 int[], by its ordinal from 1, unless it is older than $2 timestamptz[];
-- and the poll interval. In µs.
SELECT n.ordinal::int, (extract(epoch FROM l.time) * 1000000)::int8 AS time,
       (coalesce((c.attributes ->> 'expected_interval')::float8, 1) * 1000000)::int8 AS interval
FROM unnest($1::int[], $2::timestamptz[]) WITH ORDINALITY AS n (channel_id, since, ordinal)
JOIN plant.channel AS c ON c.id = n.channel_id
LEFT JOIN LATERAL plant.last_before(n.channel_id, n.since, 'infinity') AS l ON true;

-- name: select_member_gaps
-- What member $1 has not read of the sources $2 int[] from $3 to $4, by channels (NULL: all of the source). Times in
-- µs. A member that is away says itself what it missed, once it is back.
SELECT g.source_id, array_agg(g.channel_id) FILTER (WHERE g.channel_id IS NOT NULL) AS channels,
       (extract(epoch FROM g.from_time) * 1000000)::int8 AS "from",
       (extract(epoch FROM g.to_time) * 1000000)::int8 AS "to"
FROM plant.member_gap AS g
WHERE g.member = $1 AND g.source_id = ANY ($2::int[]) AND g.reason <> 'away'
  AND g.from_time < $4 AND coalesce(g.to_time > greatest(g.from_time, $3), true)
GROUP BY g.source_id, g.channel_id IS NULL, g.from_time, g.to_time;

-- name: select_lonely_samples
-- Which samples have no other of their channel within $4 of its poll interval: $1 batch, $2 channel_id int[], $3 time
-- int8[] (µs) of each; $5, $6: first and last time.
SELECT s.batch
FROM unnest($1::int[], $2::int[], $3::int8[]) AS s (batch, channel_id, time)
JOIN plant.channel AS c ON c.id = s.channel_id
CROSS JOIN LATERAL (
    SELECT TIMESTAMPTZ 'epoch' + s.time * INTERVAL '1 microsecond' AS at,
           coalesce((c.attributes ->> 'expected_interval')::float8, 1) * $4::float8 * INTERVAL '1 second' AS distance
) AS w
WHERE NOT EXISTS (
    SELECT FROM plant.samples_raw AS r
    WHERE r.channel_id = s.channel_id AND r.time > w.at - w.distance AND r.time < w.at + w.distance
      AND r.time BETWEEN $5::timestamptz - w.distance AND $6::timestamptz + w.distance
);

-- name: select_known_texts
-- Which channels have a text now: $1 channel_id int[], $2 text[]; by their indices from 0.
SELECT (t.ordinal - 1)::int AS index
FROM unnest($1::int[], $2::text[]) WITH ORDINALITY AS t (channel_id, text, ordinal)
CROSS JOIN LATERAL (
    SELECT e.text FROM plant.event AS e
    WHERE e.channel_id = t.channel_id AND e.type = 'text'
    ORDER BY e.time DESC LIMIT 1
) AS newest
WHERE newest.text = t.text;

-- name: select_alarms
-- The states of alarms of installation $1 that are newer than revision $2. Times in µs.
SELECT a.channel_id, a.limit_name, a.state, a.active, a.value, a.revision, a.acknowledged_by, a.who, a.why,
       (extract(epoch FROM a.since) * 1000000)::int8 AS since,
       (extract(epoch FROM a.acknowledged_at) * 1000000)::int8 AS acknowledged_at,
       (extract(epoch FROM a.shelved_until) * 1000000)::int8 AS shelved_until
FROM plant.alarm AS a
JOIN plant.channel AS c ON c.id = a.channel_id
JOIN plant.source AS s ON s.id = c.source_id
WHERE s.installation_id = $1 AND a.revision > $2
ORDER BY a.revision;
