-- replayed_signals for DuckDB: as ../replayed_signals.sql, which has the parameters
--
-- Portions: channel
CREATE MACRO replayed_signals_of(since, until, channels, samples, tolerance, lookback) AS TABLE
WITH
wanted AS (
    SELECT c.channel_id, c.name FROM channels_like(channels) AS c WHERE c.kind = 'analog'
),
steps AS (
    SELECT s.channel_id, s.time, s.value, s.value - previous(s.value, s.channel_id) AS step
    FROM good_samples(channels, since - lookback, until) AS s
),
ratios AS (
    SELECT r.*, r.step / nullif(previous(r.step, r.channel_id), 0) AS ratio FROM steps AS r
),
-- The logarithm is rounded coarsely, so that the last bits of a scaled copy don't matter. 32 times the hash, and whether the
-- value changed: two sums as one.
hashes AS (
    SELECT r.channel_id, r.time, r.value, r.step, (row_number() OVER ())::INT AS position,
           lag(r.channel_id, 15) OVER () = r.channel_id AS whole,
           coalesce(r.step <> 0, false)::BIGINT
           + 32 * CASE WHEN r.ratio <> 0 THEN (hash(2 * round(8 * ln(abs(r.ratio))) + (r.ratio > 0)::INT) % 1073741824)::BIGINT
                       ELSE coalesce(r.step <> 0, false)::BIGINT END AS hash
    FROM ratios AS r
),
-- The sum of the last 16 is that of 8 and the 8 before, and so on.
last_2 AS (
    SELECT h.* EXCLUDE (hash), h.hash + lag(h.hash, 1, 0) OVER () AS sums FROM hashes AS h
),
last_4 AS (
    SELECT h.* EXCLUDE (sums), h.sums + lag(h.sums, 2, 0) OVER () AS sums FROM last_2 AS h
),
last_8 AS (
    SELECT h.* EXCLUDE (sums), h.sums + lag(h.sums, 4, 0) OVER () AS sums FROM last_4 AS h
),
readings AS MATERIALIZED (
    SELECT h.* EXCLUDE (sums), h.sums + lag(h.sums, 8, 0) OVER () AS sums FROM last_8 AS h
),
windows AS (
    SELECT r.channel_id, r.position, r.time >= since AS recent, hash(r.channel_id, r.sums) AS key
    FROM readings AS r
    WHERE r.whole AND r.sums % 32 >= 12
),
-- Those of which there are several, and not only where one sample moved in that is like the one that moved out: so few that the
-- rest is cheap.
several AS (
    SELECT w.channel_id, w.position, w.recent, w.key
    FROM windows AS w
    WINDOW by_key AS (ORDER BY w.key)
    QUALIFY w.key = lag(w.key) OVER by_key OR w.key = lead(w.key) OVER by_key
),
apart AS (
    SELECT s.key FROM several AS s GROUP BY s.key HAVING max(s.position) - min(s.position) >= 16
),
-- The latest earlier window of the same hash that does not overlap.
repeated AS (
    SELECT s.channel_id, s.position, s.recent,
           s.position - last_value(s.position) OVER (PARTITION BY s.key ORDER BY s.position
                                                     RANGE BETWEEN UNBOUNDED PRECEDING AND 16 PRECEDING) AS distance
    FROM several AS s
    WHERE s.key IN (SELECT a.key FROM apart AS a)
),
breaks AS (
    SELECT r.channel_id, r.distance, r.position,
           r.position - lag(r.position) OVER same_distance > 48 AS apart
    FROM repeated AS r
    WHERE r.distance IS NOT NULL AND r.recent
    WINDOW same_distance AS (PARTITION BY r.channel_id, r.distance ORDER BY r.position)
),
numbered AS (
    SELECT b.*, count(*) FILTER (WHERE b.apart) OVER same_distance AS stretch
    FROM breaks AS b
    WINDOW same_distance AS (PARTITION BY b.channel_id, b.distance ORDER BY b.position)
),
stretches AS (
    -- The hash of a window's first two samples depends on samples before it.
    SELECT n.channel_id, n.distance, n.stretch, min(n.position) - 15 AS first, max(n.position) AS last
    FROM numbered AS n
    GROUP BY n.channel_id, n.distance, n.stretch
    HAVING max(n.position) - min(n.position) + 16 >= (SELECT samples)
),
copies AS MATERIALIZED (
    SELECT t.channel_id, t.distance, t.stretch, r.position, r.position - t.distance AS old_position, r.time, r.value,
           r.step
    FROM readings AS r
    JOIN stretches AS t ON t.channel_id = r.channel_id AND r.position BETWEEN t.first AND t.last
),
pairs AS MATERIALIZED (
    SELECT c.channel_id, c.distance, c.stretch, c.time, c.value, c.step, o.time AS old_time, o.value AS old_value,
           sign(c.step) * sign(lag(c.step) OVER stretch) < 0 AS turns
    FROM readings AS o
    JOIN copies AS c ON c.channel_id = o.channel_id AND c.old_position = o.position
    WINDOW stretch AS (PARTITION BY c.channel_id, c.distance, c.stretch ORDER BY c.position)
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
