-- setpoint_changes: when set points, modes and states were changed, from what to what
--
-- A set point is recognised by its behaviour, not by its name: it holds a value and changes occasionally. Sensors and
-- fast states (such as a photo eye) change all the time and are left out. "rounded" marks channels whose integers
-- exceed the precision of float8: the change is certain, its size is not. held_before is how long the old value was there
-- at least: it counts from the start of lookback if the value was set before that.
--
-- Parameters
--   since     timestamptz  from this moment on
--   until     timestamptz  before this moment
--   channels  text[]       names or patterns [all]
--   hold      interval     minimum average time for which a value is held [1 min]
--   lookback  interval     how far before since to look for the value before a change [1 h]
-- Reads from: since - lookback
-- Cost: one pass over the channels' samples from since - lookback to until, sorted by time: 1.5 s per million samples.
-- Example: SELECT * FROM plant.setpoint_changes('2026-03-09 10:00+00', '2026-03-09 18:00+00', '{*_sp,*/mode}');
CREATE OR REPLACE FUNCTION plant.setpoint_changes(
    since timestamptz, until timestamptz, channels text[] DEFAULT NULL, hold interval DEFAULT '1 min',
    lookback interval DEFAULT '1 hour'
)
RETURNS TABLE ("time" timestamptz, channel text, what text, old text, new text, unit text, held_before interval)
LANGUAGE sql STABLE
AS $$
WITH
wanted AS (
    SELECT c.channel_id, c.name, c.kind, c.unit FROM plant.channels_like(channels) AS c WHERE c.kind <> 'counter'
),
numbers AS (
    SELECT w.channel_id, s.time, s.value, lag(s.value) OVER (PARTITION BY w.channel_id ORDER BY s.time) AS old
    FROM wanted AS w
    CROSS JOIN LATERAL plant.good_samples(w.channel_id, since - lookback, until) AS s
),
texts AS (
    SELECT e.channel_id, e.time, e.text AS value,
           lag(e.text) OVER (PARTITION BY e.channel_id ORDER BY e.time, e.id) AS old
    FROM plant.event AS e
    JOIN wanted AS w ON w.channel_id = e.channel_id
    WHERE w.kind = 'text' AND e.type = 'text' AND coalesce(e.status, 0) >= 0 AND e.time >= since - lookback AND e.time < until
),
-- The first value is not a change, but the time for which it was held counts.
values_held AS (
    SELECT n.channel_id, n.time, n.old::text AS old, n.value::text AS new
    FROM numbers AS n
    WHERE n.value IS DISTINCT FROM n.old
    UNION ALL
    SELECT t.channel_id, t.time, t.old, t.value
    FROM texts AS t
    WHERE t.value IS DISTINCT FROM t.old
),
changes AS (
    SELECT v.*, v.time - lag(v.time) OVER of_channel AS held, min(v.time) OVER of_channel_whole AS first_time,
           count(*) OVER of_channel_whole AS n
    FROM values_held AS v
    WINDOW of_channel AS (PARTITION BY v.channel_id ORDER BY v.time),
           of_channel_whole AS (PARTITION BY v.channel_id)
)
SELECT c.time, w.name,
       CASE w.kind WHEN 'analog' THEN 'set point' WHEN 'discrete' THEN 'state' ELSE 'mode' END
       || CASE WHEN EXISTS (SELECT FROM plant.event AS e
                            WHERE e.channel_id = c.channel_id AND e.type = 'rounded' AND e.time < until)
               THEN ', rounded' ELSE '' END,
       c.old, c.new, plant.unit_at(c.channel_id, c.time), c.held
FROM changes AS c
JOIN wanted AS w ON w.channel_id = c.channel_id
WHERE c.old IS NOT NULL AND c.time >= since
  AND (until - c.first_time) / c.n >= hold
ORDER BY c.time, w.name
$$;
