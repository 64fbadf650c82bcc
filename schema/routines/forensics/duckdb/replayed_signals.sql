-- replayed_signals for DuckDB: as ../replayed_signals.sql, which has the parameters
--
-- Portions: channel
CREATE MACRO replayed_signals_of(since, until, channels, samples, tolerance, lookback) AS TABLE
WITH
wanted AS (
    SELECT c.channel_id, c.name FROM channels_like(channels) AS c WHERE c.kind = 'analog'
),
-- Each sample of a copy, and the one that it is a copy of.
pairs AS MATERIALIZED (
    SELECT unnest(replays(a.channels, epoch_us(since - lookback), epoch_us(since), epoch_us(until), samples), recursive := true)
    FROM (SELECT list(w.channel_id) AS channels FROM wanted AS w HAVING count(*) > 0) AS a
),
fits AS (
    SELECT p.channel_id, p.distance, p.stretch, regr_slope(p.value, p.old_value) AS scale,
           regr_intercept(p.value, p.old_value) AS shift,
           quantile_cont(abs(p.step), 0.5) AS usual_step,
           count(*) FILTER (WHERE p.value <> p.old_value) AS unequal, count(*) FILTER (WHERE p.step <> 0) AS changed,
           count(*) FILTER (WHERE p.turns) AS turns, count(*) AS n
    FROM pairs AS p
    GROUP BY p.channel_id, p.distance, p.stretch
),
verified AS (
    SELECT f.channel_id, f.distance, f.stretch, f.n, f.changed, f.turns, f.unequal, f.usual_step,
           CASE WHEN f.unequal = 0 THEN 1 ELSE f.scale END AS scale,
           CASE WHEN f.unequal = 0 THEN 0 ELSE f.shift END AS shift,
           min(p.time) AS copy_from, max(p.time) AS copy_to, min(p.old_time) AS old_from, max(p.old_time) AS old_to,
           max(CASE WHEN f.unequal = 0 THEN 0 ELSE abs(p.value - f.scale * p.old_value - f.shift) END) AS difference
    FROM fits AS f
    JOIN pairs AS p ON p.channel_id = f.channel_id AND p.distance = f.distance AND p.stretch = f.stretch
    GROUP BY f.channel_id, f.distance, f.stretch, f.n, f.changed, f.turns, f.unequal, f.usual_step, f.scale, f.shift
)
SELECT w.name AS channel, v.copy_from, v.copy_to, v.old_from AS original_from, v.old_to AS original_to, v.n AS copied,
       CASE WHEN v.unequal = 0 THEN 'exact' ELSE 'scaled' END AS what, v.scale, v.shift AS "offset",
       v.difference AS largest_difference
FROM verified AS v
JOIN wanted AS w ON w.channel_id = v.channel_id
WHERE v.changed >= samples AND v.changed * 2 >= v.n
  AND (v.unequal = 0 OR (v.difference <= tolerance * v.usual_step AND v.turns * 8 >= v.n));

CREATE MACRO replayed_signals(
    since, until, channels := NULL, samples := 60, tolerance := 0.05, lookback := '1 hour'
) AS TABLE
WITH found AS (
    FROM replayed_signals_of(since::TIMESTAMPTZ, until::TIMESTAMPTZ, channels::TEXT[], samples::INT, tolerance::DOUBLE,
                             lookback::INTERVAL)
)
FROM found
ORDER BY copied DESC, channel, copy_from;
