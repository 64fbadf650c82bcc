-- setpoint_changes: when set points, modes and states were changed, from what to what
--
-- A set point is recognised by its behaviour, not by its name: it holds a value and changes occasionally. A channel
-- that changes more often than once in hold on average, such as a photo eye, is none. Nor is one of whose values a
-- quarter, and three at least, were held for less than settle: it moves continually while it is not at rest, as a flow
-- does that was 0 all night, or it switches within seconds. The first and the last value do not count: how long they
-- were held is not known.
-- A ramp is one row: changes of an analog channel in one direction that follow each other within settle. time is when
-- the change began, ended when the new value was reached; of a single step they are the same. old is what was held
-- before, new what was held afterwards.
-- "rounded" marks channels whose integers exceed the precision of float8: the change is certain, its size is not.
-- held_at_least is how long the old value was there at least: it counts from the start of lookback if the value was set
-- before that. A value that was reported before lookback is looked for in the month before.
--
-- Parameters
--   since     timestamptz  from this moment on
--   until     timestamptz  before this moment
--   channels  text[]       names or patterns [NULL: all]
--   hold      interval     least mean time that a value is held [NULL: 10 sampling intervals, a 20th of the interval]
--   settle    interval     longest time between two steps of a ramp [NULL: 10 sampling intervals]
--   lookback  interval     how far before since to look for the earlier value [NULL: 1 h, 300 sampling intervals]
-- Legal: hold 0 s..100 years, settle 0 s..100 years, lookback 0 s..100 years
-- Reads from: since - lookback
-- Portions: channel
-- Cost: one pass over the channels' samples from since - lookback to until, sorted by time: 1.5 s per million samples,
-- and 1 ms per text channel.
-- Example: plantlog ask setpoint_changes --from 2026-03-09T10:00Z --to 2026-03-09T18:00Z
--          --channel '*_sp' --channel '*/mode'
WITH
selected AS (
    SELECT c.channel_id, c.name, c.kind, c.unit FROM channels_like(channels) AS c WHERE c.kind <> 'counter'
),
numbers AS MATERIALIZED (
    SELECT unnest(held_values(k.channels, k.has_ramps, epoch_us(since - lookback), epoch_us(since), epoch_us(until),
                              epoch_us(settle), epoch_us(hold)),
                  recursive := true)
    FROM (SELECT list(sel.channel_id) AS channels, sel.kind = 'analog' AS has_ramps
          FROM selected AS sel
          WHERE sel.kind <> 'text'
          GROUP BY ALL) AS k
),
-- With the text that each of them had before.
texts AS MATERIALIZED (
    SELECT t.channel_id, t.time, t.value, lag(t.value) OVER (PARTITION BY t.channel_id ORDER BY t.time, t.id) AS old
    FROM (SELECT e.channel_id, e.time, e.id, e.text AS value
          FROM event AS e
          JOIN selected AS sel ON sel.channel_id = e.channel_id
          WHERE sel.kind = 'text' AND e.type = 'text' AND coalesce(e.status, 0) >= 0 AND e.time >= since - lookback
            AND e.time < until
          UNION ALL
          SELECT sel.channel_id, since - lookback, -1, held_text(sel.channel_id, since - lookback)
          FROM selected AS sel
          WHERE sel.kind = 'text') AS t
),
-- The first value is not a change, but the time for which it was held counts.
values_held AS (
    SELECT n.channel_id, n.time, n.ended, CASE WHEN NOT isnan(n.old_value) THEN number_text(n.old_value) END AS old,
           number_text(n.value) AS new, n.is_held
    FROM numbers AS n
    UNION ALL
    SELECT t.channel_id, t.time, t.time, t.old, t.value,
           count(*) OVER of_channel = 1
           OR epoch_us(until - min(t.time) OVER of_channel) / count(*) OVER of_channel >= epoch_us(hold)
    FROM texts AS t
    WHERE t.value IS DISTINCT FROM t.old
    WINDOW of_channel AS (PARTITION BY t.channel_id)
),
changes AS (
    SELECT v.*, v.time - lag(v.ended) OVER (PARTITION BY v.channel_id ORDER BY v.time) AS held FROM values_held AS v
)
SELECT c.time, c.ended, sel.name AS channel,
       CASE sel.kind WHEN 'analog' THEN 'set point' WHEN 'discrete' THEN 'state' ELSE 'mode' END
       || CASE WHEN EXISTS (FROM event AS e
                            WHERE e.channel_id = c.channel_id AND e.type = 'rounded' AND e.time < until)
               THEN ', rounded' ELSE '' END AS what,
       c.old, c.new, unit_at(c.channel_id, c.time, patterns := channels) AS unit, c.held AS held_at_least,
       NULL AS verdict
FROM changes AS c
JOIN selected AS sel ON sel.channel_id = c.channel_id
WHERE c.old IS NOT NULL AND c.ended >= since AND c.is_held
UNION ALL BY NAME
SELECT sel.name AS channel,
       CASE j.is_held WHEN true THEN verdict_text(1) WHEN false THEN 'not judged, do not hold their values for so long'
                      ELSE verdict_text(3) END AS verdict
FROM selected AS sel
LEFT JOIN (SELECT DISTINCT c.channel_id, c.is_held FROM changes AS c) AS j ON j.channel_id = sel.channel_id;

SELECT * EXCLUDE (verdict)
FROM portion_rows
WHERE verdict IS NULL
ORDER BY time, channel;
