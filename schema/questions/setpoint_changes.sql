-- setpoint_changes: when set points, modes and states were changed, from what to what
--
-- A set point is recognised by its behaviour, not by its name: it holds a value and changes occasionally. Sensors and
-- fast states (such as a photo eye) change all the time and are left out. "rounded" marks channels whose integers
-- exceed the precision of float8: the change is certain, its size is not. held_at_least is how long the old value was
-- there at least: it counts from the start of lookback if the value was set before that. A value that was reported
-- before lookback is looked for in the month before.
--
-- Parameters
--   since     timestamptz  from this moment on
--   until     timestamptz  before this moment
--   channels  text[]       names or patterns [NULL: all]
--   hold      interval     least mean time that a value is held [NULL: 10 sampling intervals, a 20th of the interval]
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
-- Whether channels may hold a value for long, by the number of the last run: the first one may have begun earlier than
-- their first sample.
held AS MATERIALIZED (
    SELECT r.channel_id,
           max(r.number) = 1 OR epoch_us(until - (since - lookback)) / max(r.number) >= epoch_us(hold) AS may_be_long
    FROM runs_of(channel_ids(channels), since - lookback, until, hold) AS r
    GROUP BY r.channel_id
),
-- Only of channels that may hold their values long enough: fast ones are the most samples by far.
runs AS (
    SELECT unnest(value_runs(l.channels, epoch_us(since - lookback), epoch_us(until), 0, epoch_us(since)),
                  recursive := true)
    FROM (SELECT list(h.channel_id) AS channels FROM held AS h WHERE h.may_be_long HAVING count(*) > 0) AS l
),
numbers AS (
    SELECT r.channel_id, r.from_time AS time, r.value,
           lag(r.value) OVER (PARTITION BY r.channel_id ORDER BY r.from_time) AS old
    FROM runs AS r
),
stored_texts AS MATERIALIZED (
    SELECT e.channel_id, e.time, e.id, e.text AS value
    FROM event AS e
    JOIN selected AS sel ON sel.channel_id = e.channel_id
    WHERE sel.kind = 'text' AND e.type = 'text' AND coalesce(e.status, 0) >= 0 AND e.time >= since - lookback
      AND e.time < until
),
-- With the text that each of them had before.
texts AS MATERIALIZED (
    SELECT t.channel_id, t.time, t.value, lag(t.value) OVER (PARTITION BY t.channel_id ORDER BY t.time, t.id) AS old
    FROM (FROM stored_texts
          UNION ALL
          SELECT s.channel_id, since - lookback, -1, held_text(s.channel_id, since - lookback)
          FROM (SELECT DISTINCT r.channel_id FROM stored_texts AS r) AS s) AS t
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
    SELECT v.*, v.time - lag(v.time) OVER of_channel AS held,
           count(*) OVER of_channel_whole = 1
           OR epoch_us(until - min(v.time) OVER of_channel_whole) / count(*) OVER of_channel_whole >= epoch_us(hold)
           AS is_long
    FROM values_held AS v
    WINDOW of_channel AS (PARTITION BY v.channel_id ORDER BY v.time),
           of_channel_whole AS (PARTITION BY v.channel_id)
)
SELECT c.time, sel.name AS channel,
       CASE sel.kind WHEN 'analog' THEN 'set point' WHEN 'discrete' THEN 'state' ELSE 'mode' END
       || CASE WHEN EXISTS (FROM event AS e
                            WHERE e.channel_id = c.channel_id AND e.type = 'rounded' AND e.time < until)
               THEN ', rounded' ELSE '' END AS what,
       c.old, c.new, unit_at(c.channel_id, c.time, patterns := channels) AS unit, c.held AS held_at_least,
       NULL AS verdict
FROM changes AS c
JOIN selected AS sel ON sel.channel_id = c.channel_id
WHERE c.old IS NOT NULL AND c.time >= since AND c.is_long
UNION ALL BY NAME
SELECT sel.name AS channel, CASE WHEN j.is_long THEN verdict_text(1)
                                 WHEN j.channel_id IS NULL AND h.channel_id IS NULL THEN verdict_text(3)
                                 ELSE 'not judged, do not hold their values for so long' END AS verdict
FROM selected AS sel
LEFT JOIN held AS h ON h.channel_id = sel.channel_id
LEFT JOIN (SELECT DISTINCT c.channel_id, c.is_long FROM changes AS c) AS j ON j.channel_id = sel.channel_id;

SELECT * EXCLUDE (verdict)
FROM portion_rows
WHERE verdict IS NULL
ORDER BY time, channel;
