-- setpoint_changes for DuckDB: as ../setpoint_changes.sql, which has the parameters
--
-- Portions: channel
CREATE MACRO setpoint_changes_of(since, until, channels, hold, lookback) AS TABLE
WITH
wanted AS (
    SELECT c.channel_id, c.name, c.kind, c.unit FROM channels_like(channels) AS c WHERE c.kind <> 'counter'
),
numbers AS (
    SELECT s.channel_id, s.time, s.value, previous(s.value, s.channel_id) AS old
    FROM good_samples(channels, since - lookback, until) AS s
),
texts AS (
    SELECT e.channel_id, e.time, e.text AS value,
           lag(e.text) OVER (PARTITION BY e.channel_id ORDER BY e.time, e.id) AS old
    FROM event AS e
    JOIN wanted AS w ON w.channel_id = e.channel_id
    WHERE w.kind = 'text' AND e.type = 'text' AND coalesce(e.status, 0) >= 0 AND e.time >= since - lookback AND e.time < until
),
-- Only channels that hold their values long enough go on: fast ones are the most samples by far.
calm AS (
    SELECT f.channel_id
    FROM (SELECT n.channel_id, min(n.time) AS first_time, count(*) AS changes
          FROM numbers AS n
          WHERE n.value IS DISTINCT FROM n.old
          GROUP BY n.channel_id) AS f
    WHERE (epoch_us(until) - epoch_us(f.first_time)) / f.changes >= epoch_us(hold)
),
-- The first value is not a change, but the time for which it was held counts.
values_held AS (
    SELECT n.channel_id, n.time, number_text(n.old) AS old, number_text(n.value) AS new
    FROM numbers AS n
    WHERE n.value IS DISTINCT FROM n.old AND n.channel_id IN (SELECT c.channel_id FROM calm AS c)
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
       c.old, c.new, unit_at(c.channel_id, c.time) AS unit, c.held AS held_before
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
