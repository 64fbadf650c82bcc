-- The writer's statements besides COPY. A transaction writes one group of spool batches.

-- name: insert_batches
-- One row a spool batch; replaying a batch is a no-op. Returns the new ones.
-- $1 source_id int[], $2 sequence int8[], $3 kind text[], $4 rows int[],
-- $5 first_time, $6 last_time, $7 received_at timestamptz[]
INSERT INTO plant.ingest_batch (source_id, sequence, kind, rows, first_time, last_time, received_at)
SELECT f.source_id, f.sequence, f.kind, f.rows, f.first_time, f.last_time, f.received_at
FROM unnest($1::int[], $2::int8[], $3::text[], $4::int[], $5::timestamptz[], $6::timestamptz[], $7::timestamptz[])
    AS f (source_id, sequence, kind, rows, first_time, last_time, received_at)
ON CONFLICT (source_id, sequence) DO NOTHING
RETURNING source_id, sequence;

-- name: select_batches
-- Which of the batches $1 source_id int[], $2 sequence int8[] are in the table.
SELECT b.source_id, b.sequence
FROM unnest($1::int[], $2::int8[]) AS k (source_id, sequence)
JOIN plant.ingest_batch AS b ON b.source_id = k.source_id AND b.sequence = k.sequence;

-- name: select_timeline
-- Of a primary. A promoted standby begins a new one.
SELECT left(pg_walfile_name(pg_current_wal_lsn()), 8);

-- name: select_identity
-- The timeline, and when installation $1 was registered in the database; no row: a standby.
SELECT left(pg_walfile_name(pg_current_wal_lsn()), 8) AS timeline,
       (SELECT i.registered_at::text FROM plant.installation AS i WHERE i.id = $1) AS registered
WHERE NOT pg_is_in_recovery();

-- name: select_server
-- Which server this is. A managed database may keep that to itself.
SELECT s.system_identifier::text FROM pg_control_system() AS s;

-- name: count_registered
-- How many of the sources $1 int[] and of their channels $2 int[] there are; others may have the ids of some.
SELECT (SELECT count(*) FROM plant.source AS s WHERE s.id = ANY ($1::int[])) AS sources,
       (SELECT count(*) FROM plant.channel AS c
        WHERE c.id = ANY ($2::int[]) AND c.source_id = ANY ($1::int[])) AS channels;

-- name: select_newest_samples
-- Time (µs) of the newest stored sample of the sources $1 int[]: since an hour before the last batches by sequence were
-- written (those of another spool may be newer), or of these. Without any, since when the source has channels.
WITH last AS MATERIALIZED (
    SELECT s.id, l.time, l.written_at
    FROM unnest($1::int[]) AS s (id)
    CROSS JOIN LATERAL (
        SELECT max(least(n.last_time, n.received_at)) FILTER (WHERE n.kind = 'samples') AS time,
               max(n.written_at) AS written_at
        FROM (SELECT b.kind, b.last_time, b.received_at, b.written_at FROM plant.ingest_batch AS b
              WHERE b.source_id = s.id ORDER BY b.sequence DESC LIMIT 1000) AS n
    ) AS l
),
newest AS (
    SELECT b.source_id, max(least(b.last_time, b.received_at)) AS time
    FROM plant.ingest_batch AS b
    WHERE b.written_at >= (SELECT max(l.written_at) - INTERVAL '1 hour' FROM last AS l) AND b.kind = 'samples'
    GROUP BY b.source_id
)
SELECT s.id, (extract(epoch FROM coalesce(greatest(l.time, n.time), c.time)) * 1000000)::int8 AS time
FROM plant.source AS s
JOIN last AS l ON l.id = s.id
LEFT JOIN newest AS n ON n.source_id = s.id
CROSS JOIN LATERAL (SELECT min(c.configured_at) AS time FROM plant.channel AS c WHERE c.source_id = s.id) AS c;

-- name: insert_restored
-- The event of a loss that was noticed at $1: $2 text, $3 detail. A second one of that time is a no-op.
INSERT INTO plant.event (time, id, type, text, detail)
VALUES ($1, hashtextextended('database_restored', 0) & 9223372036854775807, 'database_restored', $2, $3::text::jsonb)
ON CONFLICT (time, id) DO NOTHING;

-- name: create_staging
-- For groups with duplicate rows: one table a connection, emptied by each COMMIT.
CREATE TEMPORARY TABLE IF NOT EXISTS staging (
    time       timestamptz NOT NULL,
    value      float8      NOT NULL,
    channel_id int         NOT NULL,
    status     int         NOT NULL
) ON COMMIT DELETE ROWS;

-- name: insert_staged
-- Returns the number of new rows, those among them that are not Good and those before $1 (times in µs), and the
-- channels of repeated rows.
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
       ARRAY(SELECT i.channel_id FROM inserted AS i WHERE i.time < $1 ORDER BY i.channel_id, i.time) AS late_channel_id,
       ARRAY(SELECT (extract(epoch FROM i.time) * 1000000)::int8
             FROM inserted AS i WHERE i.time < $1 ORDER BY i.channel_id, i.time) AS late_time,
       ARRAY(SELECT DISTINCT s.channel_id
             FROM staging AS s
             WHERE (s.channel_id, s.time) NOT IN (SELECT i.channel_id, i.time FROM inserted AS i)) AS repeated
FROM not_good AS b;

-- name: may_be_packed
-- Whether samples from $1 int8 (µs) on may be packed already; live ones never are.
SELECT TIMESTAMPTZ 'epoch' + $1::int8 * INTERVAL '1 microsecond' < u.until FROM plant.packed_until AS u;

-- name: select_packed
-- Which of the samples $1 channel_id int[], $2 time int8[] (µs) are packed, by their indices from 0: samples_raw takes
-- them as new, but the next packing merges them.
SELECT (s.ordinal - 1)::int AS index
FROM (
    SELECT u.channel_id, TIMESTAMPTZ 'epoch' + u.time * INTERVAL '1 microsecond' AS time, u.ordinal
    FROM unnest($1::int[], $2::int8[]) WITH ORDINALITY AS u (channel_id, time, ordinal)
    OFFSET 0
) AS s
WHERE s.time < (SELECT u.until FROM plant.packed_until AS u)
  AND plant.is_packed(s.channel_id, s.time);

-- name: select_stored
-- Which of the samples $1 channel_id int[], $2 time int8[] (µs) are stored, by their indices from 0, with value and
-- status. LATERAL and OFFSET 0 keep it to index look-ups within the chunks between $3 and $4.
SELECT (s.ordinal - 1)::int AS index, stored.value, stored.status
FROM unnest($1::int[], $2::int8[]) WITH ORDINALITY AS s (channel_id, time, ordinal)
CROSS JOIN LATERAL (
    SELECT r.value, r.status
    FROM plant.samples_raw AS r
    WHERE r.channel_id = s.channel_id
      AND r.time = TIMESTAMPTZ 'epoch' + s.time * INTERVAL '1 microsecond'
      AND r.time BETWEEN $3 AND $4
    OFFSET 0
) AS stored;

-- name: select_conflicts
-- Staged rows that are stored with another value or status. LATERAL and OFFSET 0 keep it to index look-ups within the
-- chunks between $1 and $2 (the staging table has no statistics).
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

-- name: insert_events
-- The id is a hash of the event's content, so a replay is a no-op. Returns the new ones (times in µs).
-- $1 time, $2 id int8[], $3 type text[], $4 source_id, $5 channel_id, $6 status int[], $7 text text[], $8 detail text[]
INSERT INTO plant.event (time, id, type, source_id, channel_id, status, text, detail)
SELECT e.time, e.id, e.type, e.source_id, e.channel_id, e.status, e.text, e.detail::jsonb
FROM unnest($1::timestamptz[], $2::int8[], $3::text[], $4::int[], $5::int[], $6::int[], $7::text[], $8::text[])
    AS e (time, id, type, source_id, channel_id, status, text, detail)
ON CONFLICT (time, id) DO NOTHING
RETURNING (extract(epoch FROM time) * 1000000)::int8 AS time, type, coalesce(channel_id, 0) AS channel_id, id;

-- name: known_resets
-- Resets of counters that the other member of a redundant pair has recorded, by readings of its own: within the same
-- time. $1 channel_id int[], $2 since timestamptz[], $3 time timestamptz[]; by their indices from 0.
SELECT (r.ordinal - 1)::int AS index
FROM unnest($1::int[], $2::timestamptz[], $3::timestamptz[])
    WITH ORDINALITY AS r (channel_id, since, time, ordinal)
WHERE EXISTS (
    SELECT FROM plant.event AS e
    WHERE e.type = 'counter_reset' AND e.channel_id = r.channel_id AND e.time > r.since
        AND coalesce(to_timestamp((e.detail ->> 'since')::float8 / 1e6), e.time) < r.time
);

-- name: select_sealed_among
SELECT plant.sealed_among($1::date[]);

-- name: insert_receipts
-- Of samples: $1 days, $2 contents.
INSERT INTO plant.receipt (day, kind, content)
SELECT r.day, 'samples', r.content FROM unnest($1::date[], $2::bytea[]) AS r (day, content);

-- name: insert_event_receipts
-- $1 time, $2 id int8[] of events that are new.
SELECT plant.receipt_of_events($1::timestamptz[], $2::int8[]);

-- name: select_unsigned_receipts
-- Of gaps that this transaction added or changed.
SELECT r.id, r.content FROM plant.receipt AS r
WHERE r.kind = 'gap' AND r.signature IS NULL AND r.xmin = pg_current_xact_id()::xid;

-- name: sign_receipts
-- $1 id int8[], $2 signature bytea[], $3 signer.
UPDATE plant.receipt AS r SET signer = $3, signature = s.signature
FROM unnest($1::int8[], $2::bytea[]) AS s (id, signature)
WHERE r.id = s.id;

-- name: update_source_state
-- The newest source_state event of each source wins, in whatever order they arrive; of one state, the last reason.
-- $1 source_id int[], $2 state text[], $3 since timestamptz[], $4 reason text[]
WITH newest AS (
    SELECT DISTINCT ON (n.source_id) n.source_id, n.state, n.since, n.reason
    FROM unnest($1::int[], $2::text[], $3::timestamptz[], $4::text[])
        WITH ORDINALITY AS n (source_id, state, since, reason, number)
    ORDER BY n.source_id, n.since DESC, n.number DESC
),
-- Lock in one order, so that two connections cannot deadlock.
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

-- name: record_version_read
-- Since when collectors read channels by which version: $1 channel_id, $2 version int[], $3 since timestamptz[]
SELECT plant.version_read(r.channel_id, r.version, r.since)
FROM unnest($1::int[], $2::int[], $3::timestamptz[]) AS r (channel_id, version, since)
ORDER BY r.channel_id, r.version;

-- name: upsert_event_counts
-- $1 bucket int8[] (minutes since 1970), $2 type text[], $3 channel_id int[], $4 n int8[]: each key once. Rows are
-- locked in the key's order, so that two connections cannot deadlock.
INSERT INTO plant.event_count_1m AS c (bucket, type, channel_id, n)
SELECT to_timestamp(i.bucket * 60.0::float8), i.type, i.channel_id, i.n
FROM unnest($1::int8[], $2::text[], $3::int[], $4::int8[]) AS i (bucket, type, channel_id, n)
ORDER BY i.bucket, i.type COLLATE "C", i.channel_id
ON CONFLICT (bucket, type, channel_id) DO UPDATE SET n = c.n + excluded.n;

-- name: insert_quarantine
-- The id is a hash of the row's content, so a replay is a no-op.
-- $1 id int8[], $2 reason text[], $3 source_id int[], $4 received_at timestamptz[], $5 channel_id int[],
-- $6 time_us int8[], $7 value float8[], $8 status int[], $9 detail text[]
INSERT INTO plant.quarantine (id, reason, source_id, received_at, channel_id, time_us, value, status, detail)
SELECT q.id, q.reason, q.source_id, q.received_at, q.channel_id, q.time_us, q.value, q.status, q.detail::jsonb
FROM unnest($1::int8[], $2::text[], $3::int[], $4::timestamptz[], $5::int[], $6::int8[], $7::float8[], $8::int[],
            $9::text[]) AS q (id, reason, source_id, received_at, channel_id, time_us, value, status, detail)
ON CONFLICT (id) DO NOTHING;

-- name: set_open_minutes
-- The minutes $1 timestamptz[] that this transaction holds open.
-- The trigger on plant.gap marks their rows in rollup_dirty.
SELECT set_config('plant.held_open', $1::timestamptz[]::text, true);

-- name: upsert_gaps
-- Gaps from collectors, each (source, channel, from_time) once: $1 source_id, $2 channel_id int[] (NULL: the whole
-- source), $3 from_time, $4 to_time timestamptz[] (NULL: still open), $5 reason, $6 detail text[], $7 backfilled
-- bool[], $8 revision int8[]. The highest revision wins, in whatever order they arrive. Returns the begin (µs) and the
-- channels of new gaps.
WITH upserted AS (
    INSERT INTO plant.gap AS g
        (source_id, channel_id, from_time, to_time, reason, detail, backfilled_at, revision)
    SELECT n.source_id, n.channel_id, n.from_time, n.to_time, n.reason, n.detail,
           CASE WHEN n.backfilled THEN clock_timestamp() END, n.revision
    FROM unnest($1::int[], $2::int[], $3::timestamptz[], $4::timestamptz[], $5::text[], $6::text[],
                $7::bool[], $8::int8[])
        AS n (source_id, channel_id, from_time, to_time, reason, detail, backfilled, revision)
    ON CONFLICT (source_id, channel_id, from_time) DO UPDATE
    SET to_time = excluded.to_time, reason = excluded.reason, detail = excluded.detail,
        backfilled_at = excluded.backfilled_at, revision = excluded.revision
    WHERE g.revision < excluded.revision
    RETURNING g.source_id, g.channel_id, g.from_time,
              g.xmax = 0 AND g.to_time IS DISTINCT FROM g.from_time AND g.backfilled_at IS NULL AS begins -- 0: inserted
)
SELECT (extract(epoch FROM p.from_time) * 1000000)::int8 AS time, array_agg(DISTINCT c.id) AS channels
FROM upserted AS p
CROSS JOIN LATERAL (
    SELECT p.channel_id AS id WHERE p.channel_id IS NOT NULL
    UNION ALL
    SELECT c.id FROM plant.channel AS c WHERE p.channel_id IS NULL AND c.source_id = p.source_id
) AS c
WHERE p.begins
GROUP BY p.from_time;

-- name: record_member_gaps
-- The same for the member $1 of a redundant pair; $2 to $9: the parameters of upsert_gaps.
SELECT g.gap_begin AS time, g.gap_channels AS channels
FROM plant.record_member_gaps($1, $2, $3, $4, $5, $6, $7, $8, $9) AS g;

-- name: select_open_minute_gaps
-- Rows of rollup_dirty that gaps of this transaction added for minutes that it holds open.
SELECT d.id, d.from_time
FROM plant.rollup_dirty AS d
WHERE d.open_since IS NOT NULL AND d.onward AND d.xmin = pg_current_xact_id()::xid;

-- name: insert_dirty
-- Rollup buckets that these samples change: $1 from_time, $2 to_time, $3 channels int[] (NULL: any), $4 onward.
INSERT INTO plant.rollup_dirty (from_time, to_time, channels, onward) VALUES ($1, $2, $3, $4);

-- name: insert_open_minutes
-- Minutes $1 timestamptz[] that this writer will roll up; others leave them alone until then. Returns their rows.
INSERT INTO plant.rollup_dirty (from_time, to_time, open_since)
SELECT m.minute, m.minute + INTERVAL '1 minute', clock_timestamp() FROM unnest($1::timestamptz[]) AS m (minute)
RETURNING from_time, id;

-- name: release_minutes
-- Leaves the rows $1 int8[] to maintenance: the writer will not roll them up.
UPDATE plant.rollup_dirty AS d SET open_since = NULL WHERE d.id = ANY ($1::int8[]);

-- name: select_clock
SELECT clock_timestamp();

-- name: release_predecessor_minutes
-- Leaves to maintenance what a writer of this installation that ended before $1 held open.
UPDATE plant.rollup_dirty AS d SET open_since = NULL WHERE d.open_since < $1::timestamptz AND d.held_by = session_user;

-- name: release_lost_minutes
-- The same for minutes up to $1, which is closed: they are of transactions whose COMMIT was never confirmed.
UPDATE plant.rollup_dirty AS d SET open_since = NULL
WHERE d.open_since IS NOT NULL AND d.from_time <= $1 AND d.held_by = session_user;

-- name: select_kinds
-- Channels whose minutes have states or increases.
SELECT c.id, c.kind, (c.attributes ->> 'wraps_at')::float8 AS wraps_at
FROM plant.channel AS c
WHERE c.kind IN ('discrete', 'counter')
ORDER BY c.id;

-- name: close_minute
-- Begins to close the minute $1. The row lock waits for a refresh that runs, and blocks the next.
UPDATE plant.rollup_closed AS c SET minute = $1;

-- name: delete_minute_rows
-- The minute's rows $1 int8[]. Those that maintenance has deleted are rolled up already. Returns the channels for which
-- the rows record a gap that begins in the minute.
WITH deleted AS (DELETE FROM plant.rollup_dirty AS d WHERE d.id = ANY ($1::int8[]) RETURNING d.channels, d.onward)
SELECT DISTINCT c.id FROM deleted AS t CROSS JOIN unnest(t.channels) AS c (id) WHERE t.onward;

-- name: count_gaps_in_minute
-- Number of times in the minute $1 at which gaps of a channel begin.
WITH beginning AS (
    SELECT g.source_id, g.channel_id, g.from_time
    FROM plant.gap AS g
    WHERE g.from_time >= $1 AND g.from_time < $1 + INTERVAL '1 minute'
      AND g.to_time IS DISTINCT FROM g.from_time AND g.backfilled_at IS NULL
),
times AS (
    SELECT b.channel_id AS id, b.from_time FROM beginning AS b WHERE b.channel_id IS NOT NULL
    UNION
    SELECT c.id, b.from_time FROM beginning AS b
    JOIN plant.channel AS c ON c.source_id = b.source_id
    WHERE b.channel_id IS NULL
)
SELECT t.id, count(*)::int AS gaps FROM times AS t GROUP BY t.id;

-- name: select_channels_with_minutes
-- The channels among $1 that have minutes or packed days from $2 on.
SELECT unnest(plant.channels_with_minutes($1::int[], $2)) AS id;

-- name: update_closed_counts
-- Counts a minute closed with $1 rows of the writer's own.
UPDATE plant.rollup_closed AS c
SET minutes = c.minutes + CASE WHEN $1::int > 0 THEN 1 ELSE 0 END, rows = c.rows + $1::int;

-- name: select_inconsistent_channels
-- Channels whose minute $4 the writer cannot write, because the last sample before it is not the one that it knows:
-- $1 ids, $2 times int8[] (µs), $3 values of the samples before it.
SELECT unnest(plant.inconsistent_channels($1::int[], $2::int8[], $3::float8[], $4)) AS id;

-- name: insert_dirty_hour
-- Marks the hour of the minute $1 for a refresh from its minutes, for the channels $2 int[] (NULL: any).
INSERT INTO plant.rollup_dirty (from_time, to_time, channels, hours)
SELECT h.hour, h.hour + INTERVAL '1 hour', $2::int[], true
FROM (SELECT plant.hour_of($1) AS hour) AS h
WHERE NOT EXISTS (SELECT FROM plant.rollup_dirty AS d
                  WHERE d.hours AND d.from_time = h.hour AND d.to_time = h.hour + INTERVAL '1 hour'
                    AND (d.channels IS NULL OR d.channels @> $2::int[]));
