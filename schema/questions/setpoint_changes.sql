-- setpoint_changes: when set points, modes and states were changed, from what to what
--
-- A set point is recognised by its behaviour, not by its name: it holds a value and changes occasionally. Sensors and
-- fast states (such as a photo eye) change all the time and are left out. "rounded" marks channels whose integers
-- exceed the precision of float8: the change is certain, its size is not. held_before is how long the old value was
-- there at least: it counts from the start of lookback if the value was set before that.
--
-- Parameters
--   since     timestamptz  from this moment on
--   until     timestamptz  before this moment
--   channels  text[]       names or patterns [NULL: all]
--   hold      interval     least mean time that a value is held [NULL: 10 sampling intervals, a 100th of the interval]
--   lookback  interval     how far before since to look for the earlier value [NULL: 1 h, 300 sampling intervals]
-- Legal: hold 0 s..100 years, lookback 0 s..100 years
-- Reads from: since - lookback
-- Portions: channel
-- Cost: one pass over the channels' samples from since - lookback to until, sorted by time: 1.5 s per million samples.
-- Example: plantlog ask setpoint_changes --from 2026-03-09T10:00Z --to 2026-03-09T18:00Z
--          --channel '*_sp' --channel '*/mode'
WITH
selected AS (
    SELECT c.channel_id, c.name, c.kind, c.unit FROM channels_like(channels) AS c WHERE c.kind <> 'counter'
),
-- Only of channels that hold their values long enough: fast ones are the most samples by far.
numbers AS (
    SELECT r.channel_id, r.from_time AS time, r.value,
           lag(r.value) OVER (PARTITION BY r.channel_id ORDER BY r.from_time) AS old
    FROM runs_of(steady_channels(channels, since - lookback, until, hold), since - lookback, until, INTERVAL '0 s') AS r
),
texts AS (
    SELECT e.channel_id, e.time, e.text AS value,
           lag(e.text) OVER (PARTITION BY e.channel_id ORDER BY e.time, e.id) AS old
    FROM event AS e
    JOIN selected AS sel ON sel.channel_id = e.channel_id
    WHERE sel.kind = 'text' AND e.type = 'text' AND coalesce(e.status, 0) >= 0 AND e.time >= since - lookback
      AND e.time < until
),
-- The first value is not a change, but the time for which it was held counts.
values_held AS (
    SELECT n.channel_id, n.time, number_text(n.old) AS old, number_text(n.value) AS new
    FROM numbers AS n
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
SELECT c.time, sel.name AS channel,
       CASE sel.kind WHEN 'analog' THEN 'set point' WHEN 'discrete' THEN 'state' ELSE 'mode' END
       || CASE WHEN EXISTS (FROM event AS e
                            WHERE e.channel_id = c.channel_id AND e.type = 'rounded' AND e.time < until)
               THEN ', rounded' ELSE '' END AS what,
       c.old, c.new, unit_at(c.channel_id, c.time, patterns := channels) AS unit, c.held AS held_before
FROM changes AS c
JOIN selected AS sel ON sel.channel_id = c.channel_id
WHERE c.old IS NOT NULL AND c.time >= since
  AND (epoch_us(until) - epoch_us(c.first_time)) / c.n >= epoch_us(hold);

SELECT *
FROM portion_rows
ORDER BY time, channel;
