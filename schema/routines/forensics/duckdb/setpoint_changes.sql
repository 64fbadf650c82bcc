-- setpoint_changes for DuckDB: as ../setpoint_changes.sql, which has the parameters
--
-- Portions: channel
CREATE MACRO setpoint_changes_of(since, until, channels, hold, lookback) AS TABLE
WITH
wanted AS (
    SELECT c.channel_id, c.name, c.kind, c.unit FROM channels_like(channels) AS c WHERE c.kind <> 'counter'
),
-- Only of channels that hold their values long enough: fast ones are the most samples by far.
numbers AS (
    SELECT r.channel_id, r.from_time AS time, r.value,
           lag(r.value) OVER (PARTITION BY r.channel_id ORDER BY r.from_time) AS old
    FROM runs_of(channels, since - lookback, until, INTERVAL '0 s') AS r
    WHERE r.channel_id IN calm_channels(channels, since - lookback, until, hold)
),
texts AS (
    SELECT e.channel_id, e.time, e.text AS value,
           lag(e.text) OVER (PARTITION BY e.channel_id ORDER BY e.time, e.id) AS old
    FROM event AS e
    JOIN wanted AS w ON w.channel_id = e.channel_id
    WHERE w.kind = 'text' AND e.type = 'text' AND coalesce(e.status, 0) >= 0 AND e.time >= since - lookback AND e.time < until
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
SELECT c.time, w.name AS channel,
       CASE w.kind WHEN 'analog' THEN 'set point' WHEN 'discrete' THEN 'state' ELSE 'mode' END
       || CASE WHEN EXISTS (FROM event AS e
                            WHERE e.channel_id = c.channel_id AND e.type = 'rounded' AND e.time < until)
               THEN ', rounded' ELSE '' END AS what,
       c.old, c.new, unit_at(c.channel_id, c.time, patterns := channels) AS unit, c.held AS held_before
FROM changes AS c
JOIN wanted AS w ON w.channel_id = c.channel_id
WHERE c.old IS NOT NULL AND c.time >= since
  AND (epoch_us(until) - epoch_us(c.first_time)) / c.n >= epoch_us(hold);

CREATE MACRO setpoint_changes(
    since, until, channels := NULL, hold := '1 min', lookback := '1 hour'
) AS TABLE
WITH found AS (
    FROM setpoint_changes_of(since::TIMESTAMPTZ, until::TIMESTAMPTZ, channels::TEXT[], hold::INTERVAL, lookback::INTERVAL)
)
SELECT * FROM found
ORDER BY time, channel;
