-- `plantlog evidence verify rollups`. Each statement reads stored rows, samples and rollup_dirty in one snapshot.

-- name: select_days
-- Days (UTC) with rollups or samples between $1 and $2 (NULL: no bound), by time.
WITH bounds AS (
    SELECT min(k.range_start) AS first, max(k.range_end) AS last
    FROM timescaledb_information.chunks AS k
    WHERE k.hypertable_schema = 'plant' AND k.hypertable_name IN ('samples_raw', 'samples_packed')
)
SELECT d.day
FROM bounds AS b
CROSS JOIN LATERAL generate_series(plant.day_of(greatest(b.first, $1::timestamptz)),
                                   least(b.last, $2::timestamptz, now()) - INTERVAL '1 microsecond',
                                   INTERVAL '24 hours') AS d (day)
ORDER BY d.day;

-- name: select_channels
SELECT c.id, c.kind FROM plant.channel AS c WHERE c.kind <> 'text' ORDER BY c.id;

-- name: select_hours
-- Hours of the day $2 in which channels $1 have minutes, or an hour, of samples, states or increases.
WITH filled (hour) AS (
    SELECT plant.hour_of(m.bucket)
    FROM plant.minutes_between($1, $2::timestamptz, $2::timestamptz + INTERVAL '24 hours') AS m
    UNION
    SELECT plant.hour_of(s.bucket) FROM plant.rollup_states_1m AS s
    WHERE s.channel_id = ANY ($1) AND s.bucket >= $2::timestamptz AND s.bucket < $2::timestamptz + INTERVAL '24 hours'
    UNION
    SELECT r.bucket FROM plant.rollup_1h AS r
    WHERE r.channel_id = ANY ($1) AND r.bucket >= $2::timestamptz AND r.bucket < $2::timestamptz + INTERVAL '24 hours'
    UNION
    SELECT s.bucket FROM plant.rollup_states_1h AS s
    WHERE s.channel_id = ANY ($1) AND s.bucket >= $2::timestamptz AND s.bucket < $2::timestamptz + INTERVAL '24 hours'
    UNION
    SELECT plant.hour_of(i.bucket) FROM plant.rollup_increases_1m AS i
    WHERE i.channel_id = ANY ($1) AND i.bucket >= $2::timestamptz AND i.bucket < $2::timestamptz + INTERVAL '24 hours'
    UNION
    SELECT i.bucket FROM plant.rollup_increases_1h AS i
    WHERE i.channel_id = ANY ($1) AND i.bucket >= $2::timestamptz AND i.bucket < $2::timestamptz + INTERVAL '24 hours'
)
SELECT f.hour FROM filled AS f ORDER BY f.hour;

-- name: compare_minutes
-- Minutes of channels $1 from $2 to $3 that differ from what their samples give. Excluded are minutes that are dirty or
-- that earlier dirty minutes may change, and minutes older than the oldest sample that retention has left.
WITH
oldest AS MATERIALIZED (
    SELECT c.id,
           (SELECT min(s.time) FROM plant.samples_between(ARRAY[c.id], $2::timestamptz, $3::timestamptz) AS s) AS time,
           EXISTS (SELECT FROM plant.last_before(c.id, $2::timestamptz - plant.hold_limit(), $2::timestamptz))
               AS has_earlier
    FROM unnest($1::int[]) AS c (id)
),
dirty AS MATERIALIZED (
    SELECT d.from_time, d.to_time + plant.hold_limit() + INTERVAL '1 minute' AS to_time, d.channels
    FROM plant.rollup_dirty AS d
    WHERE NOT d.hours AND d.from_time < $3::timestamptz
      AND d.to_time > $2::timestamptz - plant.hold_limit() - INTERVAL '2 minutes'
)
SELECT coalesce(e.channel_id, f.channel_id) AS channel_id, coalesce(e.bucket, f.bucket) AS bucket,
       to_jsonb(f) AS found, to_jsonb(e) AS expected,
       -- The value carried in is unknown once retention has dropped its sample.
       NOT o.has_earlier AND coalesce(e.bucket, f.bucket) = plant.minute_of(o.time) AS first_of_all
FROM plant.minutes_of($1, $2::timestamptz, $3::timestamptz) AS e
FULL JOIN plant.minutes_between($1, $2::timestamptz, $3::timestamptz) AS f
    ON f.channel_id = e.channel_id AND f.bucket = e.bucket
JOIN oldest AS o ON o.id = coalesce(e.channel_id, f.channel_id)
WHERE (e IS NULL OR f IS NULL OR e *<> f)
  AND (o.has_earlier OR coalesce(e.bucket, f.bucket) >= plant.minute_of(o.time))
  AND NOT EXISTS (SELECT FROM dirty AS d
                  WHERE coalesce(e.bucket, f.bucket) >= d.from_time AND coalesce(e.bucket, f.bucket) < d.to_time
                    AND (d.channels IS NULL OR o.id = ANY (d.channels)))
ORDER BY 1, 2;

-- name: compare_hours
-- The same for the hour $2, from stored minutes.
WITH dirty AS MATERIALIZED (
    SELECT d.channels
    FROM plant.rollup_dirty AS d
    WHERE d.from_time < $2::timestamptz + INTERVAL '1 hour'
      AND d.to_time > $2::timestamptz - plant.hold_limit() - INTERVAL '2 minutes'
)
SELECT coalesce(e.channel_id, f.channel_id) AS channel_id, $2::timestamptz AS bucket, to_jsonb(f) AS found,
       to_jsonb(e) AS expected, false AS first_of_all
FROM plant.hours_of($1, $2::timestamptz) AS e
FULL JOIN (SELECT r.* FROM plant.rollup_1h AS r WHERE r.channel_id = ANY ($1) AND r.bucket = $2::timestamptz) AS f
    ON f.channel_id = e.channel_id
WHERE (e IS NULL OR f IS NULL OR e::plant.rollup_1h *<> ROW(f.*)::plant.rollup_1h)
  AND NOT EXISTS (SELECT FROM dirty AS d
                  WHERE d.channels IS NULL OR coalesce(e.channel_id, f.channel_id) = ANY (d.channels))
ORDER BY 1;

-- name: compare_state_minutes
-- The same for the states of discrete channels $1 from $2 to $3; found and expected are objects of one state each.
WITH
oldest AS MATERIALIZED (
    SELECT c.id,
           (SELECT min(s.time) FROM plant.samples_between(ARRAY[c.id], $2::timestamptz, $3::timestamptz) AS s) AS time,
           EXISTS (SELECT FROM plant.last_before(c.id, $2::timestamptz - plant.hold_limit(), $2::timestamptz))
               AS has_earlier
    FROM unnest($1::int[]) AS c (id)
),
dirty AS MATERIALIZED (
    SELECT d.from_time, d.to_time + plant.hold_limit() + INTERVAL '1 minute' AS to_time, d.channels
    FROM plant.rollup_dirty AS d
    WHERE NOT d.hours AND d.from_time < $3::timestamptz
      AND d.to_time > $2::timestamptz - plant.hold_limit() - INTERVAL '2 minutes'
)
SELECT coalesce(e.channel_id, f.channel_id) AS channel_id, coalesce(e.bucket, f.bucket) AS bucket,
       coalesce(e.state, f.state) AS state, to_jsonb(f) AS found, to_jsonb(e) AS expected, false AS first_of_all
FROM plant.state_minutes_of($1, $2::timestamptz, $3::timestamptz) AS e
FULL JOIN (SELECT r.* FROM plant.rollup_states_1m AS r
           WHERE r.channel_id = ANY ($1) AND r.bucket >= $2::timestamptz AND r.bucket < $3::timestamptz) AS f
    ON f.channel_id = e.channel_id AND f.bucket = e.bucket AND f.state = e.state
JOIN oldest AS o ON o.id = coalesce(e.channel_id, f.channel_id)
WHERE (e IS NULL OR f IS NULL OR e.n <> f.n OR e.known <> f.known)
  AND (o.has_earlier OR coalesce(e.bucket, f.bucket) > plant.minute_of(o.time))
  AND NOT EXISTS (SELECT FROM dirty AS d
                  WHERE coalesce(e.bucket, f.bucket) >= d.from_time AND coalesce(e.bucket, f.bucket) < d.to_time
                    AND (d.channels IS NULL OR coalesce(e.channel_id, f.channel_id) = ANY (d.channels)))
ORDER BY 1, 2, 3;

-- name: compare_state_hours
-- The same for the hour $2, from stored minutes.
WITH dirty AS MATERIALIZED (
    SELECT d.channels
    FROM plant.rollup_dirty AS d
    WHERE d.from_time < $2::timestamptz + INTERVAL '1 hour'
      AND d.to_time > $2::timestamptz - plant.hold_limit() - INTERVAL '2 minutes'
)
SELECT coalesce(e.channel_id, f.channel_id) AS channel_id, $2::timestamptz AS bucket,
       coalesce(e.state, f.state) AS state, to_jsonb(f) AS found, to_jsonb(e) AS expected, false AS first_of_all
FROM plant.state_hours_of($1, $2::timestamptz) AS e
FULL JOIN (SELECT r.* FROM plant.rollup_states_1h AS r
           WHERE r.channel_id = ANY ($1) AND r.bucket = $2::timestamptz) AS f
    ON f.channel_id = e.channel_id AND f.state = e.state
WHERE (e IS NULL OR f IS NULL OR e.n <> f.n OR e.known <> f.known)
  AND NOT EXISTS (SELECT FROM dirty AS d
                  WHERE d.channels IS NULL OR coalesce(e.channel_id, f.channel_id) = ANY (d.channels))
ORDER BY 1, 3;

-- name: compare_increase_minutes
-- The same for the increases of counters $1 from $2 to $3.
WITH
oldest AS MATERIALIZED (
    SELECT c.id,
           (SELECT min(s.time) FROM plant.samples_between(ARRAY[c.id], $2::timestamptz, $3::timestamptz) AS s) AS time
    FROM unnest($1::int[]) AS c (id)
),
dirty AS MATERIALIZED (
    SELECT d.from_time, d.to_time, d.channels
    FROM plant.rollup_dirty AS d
    WHERE NOT d.hours AND d.from_time < $3::timestamptz AND d.to_time > $2::timestamptz
)
SELECT coalesce(e.channel_id, f.channel_id) AS channel_id, coalesce(e.bucket, f.bucket) AS bucket,
       to_jsonb(f) AS found, to_jsonb(e) AS expected, false AS first_of_all
FROM plant.increase_minutes_of($1, $2::timestamptz, $3::timestamptz) AS e
FULL JOIN (SELECT r.* FROM plant.rollup_increases_1m AS r
           WHERE r.channel_id = ANY ($1) AND r.bucket >= $2::timestamptz AND r.bucket < $3::timestamptz) AS f
    ON f.channel_id = e.channel_id AND f.bucket = e.bucket
JOIN oldest AS o ON o.id = coalesce(e.channel_id, f.channel_id)
WHERE e.increase IS DISTINCT FROM f.increase AND coalesce(e.bucket, f.bucket) > plant.minute_of(o.time)
  AND NOT EXISTS (SELECT FROM dirty AS d
                  WHERE coalesce(e.bucket, f.bucket) >= d.from_time AND coalesce(e.bucket, f.bucket) < d.to_time
                    AND (d.channels IS NULL OR o.id = ANY (d.channels)))
ORDER BY 1, 2;

-- name: compare_increase_hours
-- The same for the hour $2, from stored minutes.
WITH dirty AS MATERIALIZED (
    SELECT d.channels
    FROM plant.rollup_dirty AS d
    WHERE d.from_time < $2::timestamptz + INTERVAL '1 hour' AND d.to_time > $2::timestamptz
)
SELECT coalesce(e.channel_id, f.channel_id) AS channel_id, $2::timestamptz AS bucket, to_jsonb(f) AS found,
       to_jsonb(e) AS expected, false AS first_of_all
FROM plant.increase_hours_of($1, $2::timestamptz) AS e
FULL JOIN (SELECT r.* FROM plant.rollup_increases_1h AS r
           WHERE r.channel_id = ANY ($1) AND r.bucket = $2::timestamptz) AS f ON f.channel_id = e.channel_id
WHERE e.increase IS DISTINCT FROM f.increase
  AND NOT EXISTS (SELECT FROM dirty AS d
                  WHERE d.channels IS NULL OR coalesce(e.channel_id, f.channel_id) = ANY (d.channels))
ORDER BY 1;

-- name: select_channel_names
SELECT c.id, c.name FROM plant.channel AS c WHERE c.id = ANY ($1);
