-- stuck_sensors for DuckDB: as ../stuck_sensors.sql, which has the parameters
--
-- Portions: unit
CREATE MACRO stuck_sensors_of(since, until, channels, hold, factor, lookback) AS TABLE
WITH
wanted AS (
    SELECT c.channel_id, c.name, c.unit, c.low, c.high, c.unit_path, least(until, now(), c.ends) AS ends
    FROM channels_like(channels) AS c
    WHERE c.kind = 'analog'
),
readings AS (
    SELECT s.channel_id, s.time, s.value, previous(s.value, s.channel_id) AS old
    FROM good_samples(channels, since - lookback, until) AS s
),
-- One row for each value, from its first sample to the first one of the next value.
held AS MATERIALIZED (
    SELECT r.channel_id, r.value, r.time AS from_time, following(r.time, r.channel_id) AS next_time
    FROM readings AS r
    WHERE r.value IS DISTINCT FROM r.old
),
-- Few are held for long. Only of their channels it matters what is usual.
long_held AS MATERIALIZED (
    SELECT h.channel_id, h.value, h.from_time, h.next_time
    FROM held AS h
    WHERE epoch_us(coalesce(h.next_time, until)) - epoch_us(h.from_time) >= epoch_us(hold) AND coalesce(h.next_time, until) > since
),
habits AS (
    SELECT h.channel_id, count(*) AS changes,
           quantile_cont((epoch_us(h.next_time) - epoch_us(h.from_time)) / 1e6, 0.95) AS usual,
           to_microseconds(max(epoch_us(h.next_time) - epoch_us(h.from_time)) FILTER (WHERE h.next_time < since)) AS longest_before
    FROM held AS h
    WHERE h.next_time IS NOT NULL AND h.channel_id IN (SELECT l.channel_id FROM long_held AS l)
    GROUP BY h.channel_id
    HAVING count(*) >= 20
),
lasting AS (
    SELECT h.channel_id, h.value, h.from_time, coalesce(h.next_time, w.ends) AS to_time, b.usual, b.longest_before
    FROM long_held AS h
    JOIN habits AS b ON b.channel_id = h.channel_id
    JOIN wanted AS w ON w.channel_id = h.channel_id
    WHERE coalesce(h.next_time, w.ends) > since
),
lengthy AS (
    SELECT l.*, epoch(l.to_time - l.from_time) / greatest(l.usual, 1e-6) AS times
    FROM lasting AS l
    WHERE l.to_time - l.from_time >= hold
      AND epoch(l.to_time - l.from_time) >= factor * l.usual
      AND (l.longest_before IS NULL OR l.to_time - l.from_time >= 3 * l.longest_before)
),
still AS (
    SELECT l.*
    FROM lengthy AS l
    WHERE NOT EXISTS (FROM gap_channel AS g
                      WHERE g.channel_id = l.channel_id AND g.backfilled_at IS NULL
                        AND g.from_time < l.to_time AND coalesce(g.to_time, 'infinity') > l.from_time)
),
frozen AS (
    SELECT t.channel_id, t.value, t.from_time, least(t.to_time, w.ends) AS to_time,
           'its time stands still at ' || strftime(t.at, '%Y-%m-%d %H:%M:%S UTC') || ': '
           || t.refused || ' or more values were not kept' AS note
    FROM frozen_timestamps(since, until) AS t
    JOIN wanted AS w ON w.channel_id = t.channel_id
    WHERE least(t.to_time, w.ends) - t.from_time >= hold AND least(t.to_time, w.ends) > since
),
stuck AS (
    SELECT l.channel_id, l.value, l.from_time, l.to_time, l.times, NULL AS note
    FROM still AS l
    WHERE NOT EXISTS (FROM frozen AS t
                      WHERE t.channel_id = l.channel_id AND t.from_time < l.to_time AND t.to_time > l.from_time)
    UNION ALL
    SELECT t.channel_id, t.value, t.from_time, t.to_time, NULL, t.note FROM frozen AS t
),
-- Other sensors in the same unit of the plant that continued to change: the unit as a whole was not at rest.
others AS MATERIALIZED ( -- few; otherwise all samples may be joined with all other sensors of their unit first
    SELECT s.channel_id, s.from_time, s.to_time, o.channel_id AS other
    FROM stuck AS s
    JOIN wanted AS w ON w.channel_id = s.channel_id
    JOIN wanted AS o ON o.unit_path = w.unit_path AND o.channel_id <> w.channel_id
),
meanwhile AS ( -- most often there are no others: no value is then looked up
    SELECT h.channel_id, h.from_time
    FROM held AS h
    WHERE h.from_time > (SELECT min(o.from_time) FROM others AS o) AND h.from_time < (SELECT max(o.to_time) FROM others AS o)
),
-- The next change of each other sensor: comparing all changes with all intervals would take a product of both.
beside AS (
    SELECT o.channel_id, o.from_time, count(*) AS moving
    FROM others AS o
    ASOF JOIN meanwhile AS h ON h.channel_id = o.other AND h.from_time > o.from_time
    WHERE h.from_time < o.to_time
    GROUP BY o.channel_id, o.from_time
)
SELECT w.name AS channel, s.from_time AS stuck_from, s.to_time AS stuck_to, s.value, unit_at(s.channel_id, s.from_time) AS unit,
       s.times AS times_usual, coalesce(s.value <= w.low OR s.value >= w.high, false) AS at_range_limit,
       coalesce(b.moving, 0) AS moving_beside, s.note
FROM stuck AS s
JOIN wanted AS w ON w.channel_id = s.channel_id
LEFT JOIN beside AS b ON b.channel_id = s.channel_id AND b.from_time = s.from_time;

CREATE MACRO stuck_sensors(
    since, until, channels := NULL, hold := '1 min', factor := 20, lookback := '1 hour'
) AS TABLE
WITH found AS (
    FROM stuck_sensors_of(since::TIMESTAMPTZ, until::TIMESTAMPTZ, channels::TEXT[], hold::INTERVAL, factor::DOUBLE,
                          lookback::INTERVAL)
)
SELECT * FROM found
ORDER BY at_range_limit, times_usual DESC, channel;
