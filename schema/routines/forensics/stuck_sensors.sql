-- stuck_sensors: which sensors kept one value for much longer than usual
--
-- Works for channels that repeat equal values and for those that report only changes, where a stuck sensor is silent.
-- Not listed: channels with few changes (such as set points), silence in a recorded gap, and a value that lasts less
-- than three times as long as the longest one before since (such as a machine that runs at one speed for a long time).
-- Nor is a pushed channel listed that sent nothing for longer than usual: gaps_and_coverage has that as unrecorded.
-- A channel whose source timestamp repeats is listed with a note: its value since then is unknown.
--
-- Parameters
--   since     timestamptz  from this moment on
--   until     timestamptz  before this moment
--   channels  text[]       names or patterns [all analog ones]
--   hold      interval     minimum time at one value [1 min]
--   factor    float8       minimum multiple of the usual longest time between changes (95th percentile) [20]
--   lookback  interval     time before since from which usual behaviour is learned [1 h]
-- Reads from: since - lookback
-- Judges: analog channels
-- Cost: one pass over the channels' samples from since - lookback to until, sorted by time: 1 s per million samples.
-- Example: SELECT * FROM plant.stuck_sensors('2026-03-09 10:00+00', '2026-03-09 18:00+00');
CREATE OR REPLACE FUNCTION plant.stuck_sensors(
    since timestamptz, until timestamptz, channels text[] DEFAULT NULL, hold interval DEFAULT '1 min',
    factor float8 DEFAULT 20, lookback interval DEFAULT '1 hour'
)
RETURNS TABLE (
    channel text, stuck_from timestamptz, stuck_to timestamptz, value float8, unit text, times_usual float8,
    at_range_limit boolean, moving_beside bigint, note text
)
LANGUAGE sql STABLE
AS $$
WITH
wanted AS (
    SELECT c.channel_id, c.name, c.unit, c.low, c.high, c.unit_path, least(until, now(), c.ends) AS ends
    FROM plant.channels_like(channels) AS c
    WHERE c.kind = 'analog'
),
readings AS (
    SELECT w.channel_id, s.time, s.value, lag(s.value) OVER (PARTITION BY w.channel_id ORDER BY s.time) AS old
    FROM wanted AS w
    CROSS JOIN LATERAL plant.good_samples(w.channel_id, since - lookback, until) AS s
),
-- One row for each value, from its first sample to the first one of the next value.
held AS MATERIALIZED (
    SELECT r.channel_id, r.value, r.time AS from_time,
           lead(r.time) OVER (PARTITION BY r.channel_id ORDER BY r.time) AS next_time
    FROM readings AS r
    WHERE r.value IS DISTINCT FROM r.old
),
habits AS (
    SELECT h.channel_id, count(*) AS changes,
           percentile_cont(0.95) WITHIN GROUP (ORDER BY extract(epoch FROM h.next_time - h.from_time)) AS usual,
           max(h.next_time - h.from_time) FILTER (WHERE h.next_time < since) AS longest_before
    FROM held AS h
    WHERE h.next_time IS NOT NULL
    GROUP BY h.channel_id
    HAVING count(*) >= 20
),
lasting AS (
    SELECT h.channel_id, h.value, h.from_time, coalesce(h.next_time, w.ends) AS to_time, b.usual, b.longest_before
    FROM held AS h
    JOIN habits AS b ON b.channel_id = h.channel_id
    JOIN wanted AS w ON w.channel_id = h.channel_id
    WHERE coalesce(h.next_time, w.ends) > since
),
long AS MATERIALIZED (
    SELECT l.*, extract(epoch FROM l.to_time - l.from_time)::float8 / greatest(l.usual, 1e-6) AS times
    FROM lasting AS l
    WHERE l.to_time - l.from_time >= hold
      AND extract(epoch FROM l.to_time - l.from_time) >= factor * l.usual
      AND (l.longest_before IS NULL OR l.to_time - l.from_time >= 3 * l.longest_before)
      AND NOT EXISTS (SELECT FROM plant.gap_channel AS g
                      WHERE g.channel_id = l.channel_id AND g.backfilled_at IS NULL
                        AND g.from_time < l.to_time AND coalesce(g.to_time, 'infinity') > l.from_time)
),
-- A pushed channel that was silent for longer than usual may have had any value meanwhile.
silences AS MATERIALIZED (
    SELECT p.channel_id, p.from_time, least(p.to_time, w.ends) AS to_time
    FROM (
        SELECT array_agg(DISTINCT l.channel_id) AS ids
        FROM long AS l
        JOIN plant.channel AS c ON c.id = l.channel_id
        JOIN plant.source AS s ON s.id = c.source_id
        WHERE s.kind = 'push'
    ) AS l
    CROSS JOIN LATERAL plant.pauses(l.ids, since - lookback, until) AS p
    JOIN wanted AS w ON w.channel_id = p.channel_id
    WHERE extract(epoch FROM least(p.to_time, w.ends) - p.from_time) > p.usual_seconds
),
still AS (
    SELECT l.*
    FROM long AS l
    WHERE NOT EXISTS (SELECT FROM silences AS s
                      WHERE s.channel_id = l.channel_id AND s.from_time < l.to_time AND s.to_time > l.from_time)
),
frozen AS (
    SELECT t.channel_id, t.value, t.from_time, least(t.to_time, w.ends) AS to_time,
           'its time stands still at ' || to_char(t.at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS "UTC"') || ': '
           || t.refused || ' or more values were not kept' AS note
    FROM plant.frozen_timestamps(since, until) AS t
    JOIN wanted AS w ON w.channel_id = t.channel_id
    WHERE least(t.to_time, w.ends) - t.from_time >= hold AND least(t.to_time, w.ends) > since
),
stuck AS (
    SELECT l.channel_id, l.value, l.from_time, l.to_time, l.times, NULL AS note
    FROM still AS l
    WHERE NOT EXISTS (SELECT FROM frozen AS t
                      WHERE t.channel_id = l.channel_id AND t.from_time < l.to_time AND t.to_time > l.from_time)
    UNION ALL
    SELECT t.channel_id, t.value, t.from_time, t.to_time, NULL, t.note FROM frozen AS t
),
-- Other sensors in the same unit of the plant that continued to change: the unit as a whole was not at rest.
beside AS (
    SELECT s.channel_id, s.from_time, count(DISTINCT h.channel_id) AS moving
    FROM stuck AS s
    JOIN wanted AS w ON w.channel_id = s.channel_id
    JOIN wanted AS o ON o.unit_path = w.unit_path AND o.channel_id <> w.channel_id
    JOIN held AS h ON h.channel_id = o.channel_id AND h.from_time > s.from_time AND h.from_time < s.to_time
    GROUP BY s.channel_id, s.from_time
)
SELECT w.name, s.from_time, s.to_time, s.value, plant.unit_at(s.channel_id, s.from_time), s.times,
       coalesce(s.value <= w.low OR s.value >= w.high, false), coalesce(b.moving, 0), s.note
FROM stuck AS s
JOIN wanted AS w ON w.channel_id = s.channel_id
LEFT JOIN beside AS b ON b.channel_id = s.channel_id AND b.from_time = s.from_time
ORDER BY 7, s.times DESC, w.name, s.from_time
$$;
