-- What the writer runs besides COPY. One transaction holds one group of spool batches.

-- name: batch_facts
-- One row a spool batch; a replay of a batch that is already there is a no-op. Returns the new ones.
-- $1 source_id int[], $2 sequence int8[], $3 kind text[], $4 rows int[],
-- $5 first_time, $6 last_time, $7 received_at timestamptz[]
INSERT INTO plant.ingest_batch (source_id, sequence, kind, rows, first_time, last_time, received_at)
SELECT f.source_id, f.sequence, f.kind, f.rows, f.first_time, f.last_time, f.received_at
FROM unnest($1::int[], $2::int8[], $3::text[], $4::int[], $5::timestamptz[], $6::timestamptz[], $7::timestamptz[])
    AS f (source_id, sequence, kind, rows, first_time, last_time, received_at)
ON CONFLICT (source_id, sequence) DO NOTHING
RETURNING source_id, sequence;

-- name: staging
-- The conflict lane's table, one a connection, emptied by each COMMIT.
CREATE TEMPORARY TABLE IF NOT EXISTS staging (
    time       timestamptz NOT NULL,
    value      float8      NOT NULL,
    channel_id int         NOT NULL,
    status     int         NOT NULL
) ON COMMIT DELETE ROWS;

-- name: insert_staged
-- Returns how many rows were new, those of them that are not Good (times in µs), and the channels of the others.
WITH inserted AS (
    INSERT INTO plant.samples_raw (time, value, channel_id, status)
    SELECT s.time, s.value, s.channel_id, s.status
    FROM staging AS s
    ON CONFLICT (channel_id, time) DO NOTHING
    RETURNING time, channel_id, status
),
not_good AS (
    SELECT i.channel_id, (extract(epoch FROM i.time) * 1000000)::int8 AS time, i.status
    FROM inserted AS i
    WHERE i.status >> 30 <> 0
)
SELECT (SELECT count(*) FROM inserted)::int AS new,
       coalesce(array_agg(b.channel_id), '{}') AS channel_id,
       coalesce(array_agg(b.time), '{}') AS time,
       coalesce(array_agg(b.status), '{}') AS status,
       ARRAY(SELECT DISTINCT s.channel_id
             FROM staging AS s
             WHERE (s.channel_id, s.time) NOT IN (SELECT i.channel_id, i.time FROM inserted AS i)) AS repeated
FROM not_good AS b;

-- name: any_packed
-- Whether samples from $1 int8 (µs) on can be packed: those that are live can't.
SELECT TIMESTAMPTZ 'epoch' + $1::int8 * INTERVAL '1 microsecond' < u.until FROM plant.packed_until AS u;

-- name: packed
-- Which of the samples $1 channel_id int[], $2 time int8[] (µs) are packed, by their places from 0: in samples_raw they
-- are new, but only until the next packing merges them.
SELECT (s.place - 1)::int AS place
FROM (
    SELECT u.channel_id, TIMESTAMPTZ 'epoch' + u.time * INTERVAL '1 microsecond' AS time, u.place
    FROM unnest($1::int[], $2::int8[]) WITH ORDINALITY AS u (channel_id, time, place)
    OFFSET 0
) AS s
WHERE s.time < (SELECT u.until FROM plant.packed_until AS u)
  AND plant.is_packed(s.channel_id, s.time);

-- name: there
-- Which of the samples $1 channel_id int[], $2 time int8[] (µs) the table has, by their places from 0, and what of them.
-- LATERAL and OFFSET 0 keep it to index look-ups within the chunks between $3 and $4.
SELECT (s.place - 1)::int AS place, stored.value, stored.status
FROM unnest($1::int[], $2::int8[]) WITH ORDINALITY AS s (channel_id, time, place)
CROSS JOIN LATERAL (
    SELECT r.value, r.status
    FROM plant.samples_raw AS r
    WHERE r.channel_id = s.channel_id
      AND r.time = TIMESTAMPTZ 'epoch' + s.time * INTERVAL '1 microsecond'
      AND r.time BETWEEN $3 AND $4
    OFFSET 0
) AS stored;

-- name: differing
-- Staged rows whose channel and time the table holds with another value or status. LATERAL and OFFSET 0 keep it
-- to index look-ups within the chunks between $1 and $2 (the staging table has no statistics).
-- float8send compares bits: a NaN equals itself, -0 differs from 0.
SELECT s.time, s.channel_id, s.value, s.status, stored.value AS stored_value, stored.status AS stored_status
FROM staging AS s
CROSS JOIN LATERAL (
    SELECT r.value, r.status
    FROM plant.samples_raw AS r
    WHERE r.channel_id = s.channel_id
      AND r.time = s.time
      AND r.time BETWEEN $1 AND $2
    OFFSET 0
) AS stored
WHERE float8send(stored.value) <> float8send(s.value)
   OR stored.status <> s.status;

-- name: events
-- The id is a hash of what the event says, so that a replay is a no-op. Returns the new ones (times in µs).
-- $1 time, $2 id int8[], $3 type text[], $4 source_id, $5 channel_id, $6 status int[], $7 text text[], $8 detail text[]
INSERT INTO plant.event (time, id, type, source_id, channel_id, status, text, detail)
SELECT e.time, e.id, e.type, e.source_id, e.channel_id, e.status, e.text, e.detail::jsonb
FROM unnest($1::timestamptz[], $2::int8[], $3::text[], $4::int[], $5::int[], $6::int[], $7::text[], $8::text[])
    AS e (time, id, type, source_id, channel_id, status, text, detail)
ON CONFLICT (time, id) DO NOTHING
RETURNING (extract(epoch FROM time) * 1000000)::int8 AS time, type, coalesce(channel_id, 0) AS channel_id;

-- name: source_state
-- The newest source_state event of each source wins, whatever order they come in.
-- $1 source_id int[], $2 state text[], $3 since timestamptz[], $4 reason text[]
WITH newest AS (
    SELECT DISTINCT ON (n.source_id) n.source_id, n.state, n.since, n.reason
    FROM unnest($1::int[], $2::text[], $3::timestamptz[], $4::text[]) AS n (source_id, state, since, reason)
    ORDER BY n.source_id, n.since DESC
),
-- In one order, so that two connections never wait for each other in a circle.
locked AS (
    SELECT s.id
    FROM plant.source AS s
    WHERE s.id IN (SELECT newest.source_id FROM newest)
    ORDER BY s.id
    FOR NO KEY UPDATE
)
UPDATE plant.source AS s
SET state = newest.state, state_since = newest.since, reason = newest.reason
FROM newest
JOIN locked ON locked.id = newest.source_id
WHERE s.id = newest.source_id
  AND (s.state_since IS NULL OR s.state_since <= newest.since);

-- name: version_read
-- Collectors say since when they read channels by their versions: $1 channel_id, $2 version int[], $3 since timestamptz[]
SELECT plant.version_read(r.channel_id, r.version, r.since)
FROM unnest($1::int[], $2::int[], $3::timestamptz[]) AS r (channel_id, version, since)
ORDER BY r.channel_id, r.version;

-- name: count
-- $1 bucket int8[] (minutes since 1970), $2 type text[], $3 channel_id int[], $4 n int8[]: each key once, and in the
-- key's order, which is the order of locks of two connections that add to the same rows.
INSERT INTO plant.event_count_1m AS c (bucket, type, channel_id, n)
SELECT to_timestamp(i.bucket * 60.0::float8), i.type, i.channel_id, i.n
FROM unnest($1::int8[], $2::text[], $3::int[], $4::int8[]) AS i (bucket, type, channel_id, n)
ORDER BY i.bucket, i.type COLLATE "C", i.channel_id
ON CONFLICT (bucket, type, channel_id) DO UPDATE SET n = c.n + excluded.n;

-- name: quarantine
-- The id is a hash of what came, so that a replay is a no-op.
-- $1 id int8[], $2 reason text[], $3 source_id int[], $4 received_at timestamptz[], $5 channel_id int[],
-- $6 time_us int8[], $7 value float8[], $8 status int[], $9 detail text[]
INSERT INTO plant.quarantine (id, reason, source_id, received_at, channel_id, time_us, value, status, detail)
SELECT q.id, q.reason, q.source_id, q.received_at, q.channel_id, q.time_us, q.value, q.status, q.detail::jsonb
FROM unnest($1::int8[], $2::text[], $3::int[], $4::timestamptz[], $5::int[], $6::int8[], $7::float8[], $8::int[],
            $9::text[]) AS q (id, reason, source_id, received_at, channel_id, time_us, value, status, detail)
ON CONFLICT (id) DO NOTHING;

-- name: held_open
-- Which minutes, $1 timestamptz[], this transaction holds open: what new gaps leave in rollup_dirty of them says so.
SELECT set_config('plant.held_open', $1::timestamptz[]::text, true);

-- name: gap
-- What collectors say of gaps, each (source, channel, from_time) once: $1 source_id, $2 channel_id int[] (NULL: the whole
-- source), $3 from_time, $4 to_time timestamptz[] (NULL: still open), $5 reason, $6 detail text[], $7 backfilled bool[],
-- $8 revision int8[]. What was said later stays, whatever order they come in. Returns where gaps begin (µs) that were not
-- there, and the channels that have them.
WITH put AS (
    INSERT INTO plant.gap AS g
        (source_id, channel_id, from_time, to_time, reason, detail, backfilled_at, revision)
    SELECT n.source_id, n.channel_id, n.from_time, n.to_time, n.reason, n.detail,
           CASE WHEN n.backfilled THEN clock_timestamp() END, n.revision
    FROM unnest($1::int[], $2::int[], $3::timestamptz[], $4::timestamptz[], $5::text[], $6::text[], $7::bool[], $8::int8[])
        AS n (source_id, channel_id, from_time, to_time, reason, detail, backfilled, revision)
    ON CONFLICT (source_id, channel_id, from_time) DO UPDATE
    SET to_time = excluded.to_time, reason = excluded.reason, detail = excluded.detail,
        backfilled_at = excluded.backfilled_at, revision = excluded.revision
    WHERE g.revision < excluded.revision
    RETURNING g.source_id, g.channel_id, g.from_time,
              g.xmax = 0 AND g.to_time IS DISTINCT FROM g.from_time AND g.backfilled_at IS NULL AS begins -- 0: inserted
)
SELECT (extract(epoch FROM p.from_time) * 1000000)::int8 AS time, array_agg(DISTINCT c.id) AS channels
FROM put AS p
CROSS JOIN LATERAL (
    SELECT p.channel_id AS id WHERE p.channel_id IS NOT NULL
    UNION ALL
    SELECT c.id FROM plant.channel AS c WHERE p.channel_id IS NULL AND c.source_id = p.source_id
) AS c
WHERE p.begins
GROUP BY p.from_time;

-- name: held_gaps
-- The rows of rollup_dirty that gaps of this transaction left in minutes that it holds open.
SELECT d.id, d.from_time
FROM plant.rollup_dirty AS d
WHERE d.open_since IS NOT NULL AND d.onward AND d.xmin = pg_current_xact_id()::xid;

-- name: dirty
-- Buckets of the rollups that these samples change: $1 from_time, $2 to_time, $3 channels int[] (NULL: any), $4 onward.
INSERT INTO plant.rollup_dirty (from_time, to_time, channels, onward) VALUES ($1, $2, $3, $4);

-- name: open_minutes
-- Minutes that this writer makes, and that others leave alone until then: $1 timestamptz[]. Returns their rows.
INSERT INTO plant.rollup_dirty (from_time, to_time, open_since)
SELECT m.minute, m.minute + INTERVAL '1 minute', clock_timestamp() FROM unnest($1::timestamptz[]) AS m (minute)
RETURNING from_time, id;

-- name: leave_minutes
-- Rows of them, $1 int8[], that the writer does not make after all.
UPDATE plant.rollup_dirty AS d SET open_since = NULL WHERE d.id = ANY ($1::int8[]);

-- name: clock
SELECT clock_timestamp();

-- name: leave_former
-- What a writer that ended before $1 held open is to be made of what is stored.
UPDATE plant.rollup_dirty AS d SET open_since = NULL WHERE d.open_since < $1::timestamptz;

-- name: discrete
SELECT c.id FROM plant.channel AS c WHERE c.kind = 'discrete' ORDER BY c.id;

-- name: close_minute
-- A writer closes the minute $1. Whoever makes minutes anew waits, or has ended.
UPDATE plant.rollup_closed AS c SET minute = $1;

-- name: take_minute
-- The minute's rows $1 int8[]. Where maintenance has taken some, it has made the minute: nothing follows on it. Returns
-- the channels of which they say that gaps begin in it.
WITH taken AS (DELETE FROM plant.rollup_dirty AS d WHERE d.id = ANY ($1::int8[]) RETURNING d.channels, d.onward)
SELECT DISTINCT c.id FROM taken AS t CROSS JOIN unnest(t.channels) AS c (id) WHERE t.onward;

-- name: gaps_in_minute
-- Channels of which gaps begin in the minute $1.
WITH begun AS (
    SELECT g.source_id, g.channel_id
    FROM plant.gap AS g
    WHERE g.from_time >= $1 AND g.from_time < $1 + INTERVAL '1 minute'
      AND g.to_time IS DISTINCT FROM g.from_time AND g.backfilled_at IS NULL
)
SELECT b.channel_id AS id FROM begun AS b WHERE b.channel_id IS NOT NULL
UNION
SELECT c.id FROM plant.channel AS c WHERE c.source_id IN (SELECT b.source_id FROM begun AS b WHERE b.channel_id IS NULL);

-- name: having_minutes
-- Which of the channels $1 have minutes from $2 on.
SELECT unnest(plant.having_minutes($1::int[], $2)) AS id;

-- name: closed
-- The minute is closed with $1 rows of the writer's own.
UPDATE plant.rollup_closed AS c SET minutes = c.minutes + CASE WHEN $1::int > 0 THEN 1 ELSE 0 END, rows = c.rows + $1::int;

-- name: not_following
-- Channels of which the minute $4 can't be written: $1 ids, $2 times int8[] (µs), $3 values of the samples before it.
SELECT unnest(plant.not_following($1::int[], $2::int8[], $3::float8[], $4)) AS id;

-- name: dirty_hour
-- The hour of the minute $1 is to be made of its minutes, of the channels $2 int[] (NULL: any).
INSERT INTO plant.rollup_dirty (from_time, to_time, channels, hours)
SELECT h.hour, h.hour + INTERVAL '1 hour', $2::int[], true
FROM (SELECT plant.hour_of($1) AS hour) AS h
WHERE NOT EXISTS (SELECT FROM plant.rollup_dirty AS d
                  WHERE d.hours AND d.from_time = h.hour AND d.to_time = h.hour + INTERVAL '1 hour'
                    AND (d.channels IS NULL OR d.channels @> $2::int[]));
