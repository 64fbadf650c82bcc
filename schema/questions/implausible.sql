-- implausible: where channels contradict each other physically
--
-- Rules, applied to means of each "bucket":
--   fills while its inlet is shut, falls while its outlet is shut: a tank's level moves without a flow
--   does not follow its flows: the level differs from inlet minus outlet, compared with the relation in the reference
--   differs from its twin: two channels of one quantity of one unit (boilerhouse/boiler1/oxygen,
--     meters/boiler1/oxygen) are further apart than there
--   runs backwards: a counter is lower than before, because of a reset, a replaced device, or a wrong value
-- A tank is a unit of the plant that has the three quantities named by level, inlet and outlet. To learn what is usual
-- takes 20 means of the reference, of a level that follows its flows there (R² above 0.8). Others are not judged.
-- The rules of a tank need the range of its level, and to know that a valve is shut, that of its flow.
--
-- Parameters
--   since      timestamptz  from this moment on
--   until      timestamptz  before this moment
--   channels   text[]       names or patterns; a tank is selected by its level [NULL: all]
--   bucket     interval     length of a mean [NULL: 30 s, 3 sampling intervals]
--   reference  reference    FROM..TO, or a time before [NULL: 1 h, 300 sampling intervals]
--   rise       float8       smallest change of a level without flow, as a fraction of its range [0.005]
--   level      text         last part of the names of tank levels [level]
--   inlet      text         last part of the names of inlet flows [inlet_flow]
--   outlet     text         last part of the names of outlet flows [outlet_flow]
-- Legal: bucket a 1000000th..interval, rise 0..1
-- Reads from: reference
-- Portions: namesake
-- Cost: a pass over the samples of tanks and twins from the reference to until: 2 s per million samples.
-- Example: plantlog ask implausible --from 2026-03-09T10:00Z --to 2026-03-09T11:00Z
WITH
selected AS (
    SELECT c.channel_id, c.name, c.unit, c.unit_path, c.quantity, c.span, c.kind FROM channels_like(channels) AS c
),
tanks AS (
    SELECT l.channel_id AS level_id, l.name, l.span, i.channel_id AS inlet_id, o.channel_id AS outlet_id,
           -- A flow of less than a hundredth of the range means that the valve is closed.
           i.span * 0.01 AS inlet_shut, o.span * 0.01 AS outlet_shut, i.name AS inlet_name, o.name AS outlet_name
    FROM selected AS l
    JOIN channels_like(NULL) AS i ON i.unit_path = l.unit_path AND i.quantity = inlet
    JOIN channels_like(NULL) AS o ON o.unit_path = l.unit_path AND o.quantity = outlet
    WHERE l.quantity = level AND l.kind = 'analog'
),
twins AS (
    SELECT a.channel_id AS one_id, a.name, b.channel_id AS other_id, b.name AS beside, coalesce(a.span, b.span) AS span
    FROM selected AS a
    JOIN channels_like(NULL) AS b
      ON b.quantity = a.quantity AND b.unit = a.unit AND b.kind = a.kind AND b.name <> a.name
     AND split_part(b.unit_path, '/', -1) = split_part(a.unit_path, '/', -1)
    -- Each pair once, even if only one of the two is selected.
    WHERE a.kind = 'analog' AND (a.name < b.name OR b.channel_id NOT IN (SELECT sel.channel_id FROM selected AS sel))
),
required_channels AS (
    SELECT DISTINCT n.channel_id
    FROM (SELECT unnest([t.level_id, t.inlet_id, t.outlet_id]) AS channel_id FROM tanks AS t
          UNION ALL
          SELECT unnest([t.one_id, t.other_id]) FROM twins AS t) AS n
),
means AS MATERIALIZED (
    SELECT unnest(resampled_means(a.fields, epoch_us(least(since, reference[1]) - (reference[2] - reference[1])),
                                  epoch_us(least(since, reference[1])), epoch_us(greatest(until, reference[2])),
                                  epoch_us(bucket)),
                  recursive := true)
    FROM (SELECT list(g.fields) AS fields
          FROM channels_with_gaps(NULL, least(since, reference[1]), greatest(until, reference[2])) AS g
          JOIN required_channels AS n ON n.channel_id = g.channel_id
          HAVING count(*) > 0) AS a
),
-- The change of the level between two means, and the flows of both buckets.
balances AS MATERIALIZED (
    SELECT t.name, t.span, t.inlet_name, t.outlet_name, l.time,
           l.value - lag(l.value) OVER per_tank AS move,
           (i.value - o.value + lag(i.value - o.value) OVER per_tank) / 2 AS net,
           greatest(i.value, lag(i.value) OVER per_tank) < t.inlet_shut AS inlet_shut,
           greatest(o.value, lag(o.value) OVER per_tank) < t.outlet_shut AS outlet_shut
    FROM tanks AS t
    JOIN means AS l ON l.channel_id = t.level_id
    JOIN means AS i ON i.channel_id = t.inlet_id AND i.time = l.time
    JOIN means AS o ON o.channel_id = t.outlet_id AND o.time = l.time
    WINDOW per_tank AS (PARTITION BY t.level_id ORDER BY l.time)
),
learned AS MATERIALIZED (
    SELECT b.name, count(*) AS means, regr_r2(b.move, b.net) AS r2,
           regr_slope(b.move, b.net) AS slope, regr_intercept(b.move, b.net) AS drift,
           sqrt(greatest(0, regr_syy(b.move, b.net) * (1 - regr_r2(b.move, b.net)) / count(*))) AS spread
    FROM balances AS b
    WHERE b.time >= reference[1] AND b.time < reference[2] AND b.move IS NOT NULL
    GROUP BY b.name
),
differences AS MATERIALIZED (
    SELECT t.name, t.beside, t.span, a.time, a.value, b.value AS other, a.value - b.value AS difference
    FROM twins AS t
    JOIN means AS a ON a.channel_id = t.one_id
    JOIN means AS b ON b.channel_id = t.other_id AND b.time = a.time
),
usual AS MATERIALIZED (
    SELECT d.name, d.beside, avg(d.difference) AS mean,
           -- At least a 2000th of the range, without one of the values.
           greatest(stddev_pop(d.difference), coalesce(d.span, avg(abs(d.value))) * 5e-4) AS spread
    FROM differences AS d
    WHERE d.time >= reference[1] AND d.time < reference[2]
    GROUP BY d.name, d.beside, d.span
    HAVING count(*) >= 20
),
-- Each bucket by each rule. Measured and plausible values are sums for changes, means for values.
checks AS (
    SELECT b.name, 'fills while its inlet is shut' AS rule, b.inlet_name AS beside, b.time, b.span,
           coalesce(b.inlet_shut AND b.move > 0, false) AS broken, b.move AS measured, 0::DOUBLE AS plausible
    FROM balances AS b
    UNION ALL
    SELECT b.name, 'falls while its outlet is shut', b.outlet_name, b.time, b.span,
           coalesce(b.outlet_shut AND b.move < 0, false), b.move, 0
    FROM balances AS b
    UNION ALL
    SELECT b.name, 'does not follow its flows', concat_ws(', ', b.inlet_name, b.outlet_name), b.time, b.span,
           coalesce(abs(b.move - l.slope * b.net - l.drift) > greatest(6 * l.spread, b.span * 1e-5), false), b.move,
           l.slope * b.net + l.drift
    FROM balances AS b
    JOIN learned AS l ON l.name = b.name AND l.means >= 20 AND l.r2 > 0.8
    UNION ALL
    SELECT d.name, 'differs from its twin', d.beside, d.time, d.span,
           abs(d.difference - u.mean) > 6 * u.spread, d.value, d.other + u.mean
    FROM differences AS d
    JOIN usual AS u ON u.name = d.name AND u.beside = d.beside
),
-- Consecutive buckets that break a rule are one episode; a single bucket in between that keeps it does not end it.
violations AS (
    SELECT j.*, j.time - lag(j.time) OVER (PARTITION BY j.name, j.rule, j.beside ORDER BY j.time) > 2 * bucket AS apart
    FROM checks AS j
    WHERE j.broken AND j.time >= since AND j.time < until
),
numbered_violations AS (
    SELECT m.*, count(*) FILTER (WHERE m.apart) OVER (PARTITION BY m.name, m.rule, m.beside ORDER BY m.time) AS episode
    FROM violations AS m
),
decreases AS (
    SELECT d.*, d.time - lag(d.time) OVER (PARTITION BY d.channel_id ORDER BY d.time) > 2 * bucket AS apart
    FROM counter_decreases(channels, least(since - INTERVAL '1 hour', reference[1]), until) AS d
    WHERE d.time >= since
),
backward_episodes AS (
    SELECT d.*, count(*) FILTER (WHERE d.apart) OVER (PARTITION BY d.channel_id ORDER BY d.time) AS episode
    FROM decreases AS d
),
episodes AS (
    SELECT n.name, n.rule, n.beside, n.span, min(n.time) AS begins, max(n.time + bucket) AS ends,
           CASE WHEN n.rule LIKE 'differs%' THEN avg(n.measured) ELSE sum(n.measured) END AS measured,
           CASE WHEN n.rule LIKE 'differs%' THEN avg(n.plausible) ELSE sum(n.plausible) END AS plausible,
           count(*) AS buckets
    FROM numbered_violations AS n
    GROUP BY n.name, n.rule, n.beside, n.span, n.episode
),
-- Each channel by each rule about it, and why it can't be judged (NULL: it is). A value holds without samples, but one
-- of those that a rule compares has to have some.
sampled AS MATERIALIZED (
    SELECT i.channel_id
    FROM (SELECT unnest(sample_intervals(list(n.channel_id), epoch_us(since), epoch_us(until), 9223372036854775807),
                        recursive := true)
          FROM (FROM required_channels
                UNION
                SELECT sel.channel_id FROM selected AS sel WHERE sel.kind = 'counter') AS n
          HAVING count(*) > 0) AS i
),
judged_tanks AS (
    SELECT t.name, t.inlet_shut, t.outlet_shut, coalesce(l.means, 0) AS means, l.r2,
           CASE WHEN NOT EXISTS (FROM sampled AS s WHERE s.channel_id IN (t.level_id, t.inlet_id, t.outlet_id))
                THEN 'no samples in the interval'
                WHEN NOT EXISTS (FROM balances AS b
                                 WHERE b.name = t.name AND b.time >= since AND b.time < until
                                   AND b.move IS NOT NULL)
                THEN 'fewer than 2 means of level and flows in the interval'
                WHEN t.span IS NULL THEN 'level has no range' END AS missing
    FROM tanks AS t
    LEFT JOIN learned AS l ON l.name = t.name
),
judged_twins AS (
    SELECT t.name, t.beside, u.name IS NOT NULL AS has_reference,
           EXISTS (FROM sampled AS s WHERE s.channel_id IN (t.one_id, t.other_id)) AS has_samples,
           EXISTS (FROM differences AS d
                   WHERE d.name = t.name AND d.beside = t.beside AND d.time >= since AND d.time < until) AS has_means
    FROM twins AS t
    LEFT JOIN usual AS u ON u.name = t.name AND u.beside = t.beside
),
judgements AS (
    SELECT t.name, 'fills while its inlet is shut' AS rule,
           coalesce(t.missing, CASE WHEN t.inlet_shut IS NULL THEN 'inlet flow has no range' END) AS missing
    FROM judged_tanks AS t
    UNION ALL
    SELECT t.name, 'falls while its outlet is shut',
           coalesce(t.missing, CASE WHEN t.outlet_shut IS NULL THEN 'outlet flow has no range' END)
    FROM judged_tanks AS t
    UNION ALL
    SELECT t.name, 'does not follow its flows',
           coalesce(t.missing,
                    CASE WHEN t.means < 20 THEN 'fewer than 20 means of level and flows in the reference'
                         WHEN t.r2 > 0.8 IS NOT TRUE THEN 'level did not follow its flows in the reference' END)
    FROM judged_tanks AS t
    UNION ALL
    SELECT j.name, 'differs from its twin',
           CASE WHEN NOT j.has_samples THEN 'no samples in the interval'
                WHEN NOT j.has_means THEN 'no means of both in the interval'
                WHEN NOT j.has_reference THEN 'fewer than 20 means of both in the reference' END
    FROM (SELECT unnest([t.name, t.beside]) AS name, t.has_samples, t.has_means, t.has_reference
          FROM judged_twins AS t) AS j
    WHERE j.name IN (SELECT sel.name FROM selected AS sel)
    UNION ALL
    SELECT sel.name, 'runs backwards', CASE WHEN s.channel_id IS NULL THEN 'no samples in the interval' END
    FROM selected AS sel
    LEFT JOIN (SELECT DISTINCT s.channel_id FROM sampled AS s) AS s ON s.channel_id = sel.channel_id
    WHERE sel.kind = 'counter'
)
SELECT e.name AS channel, e.rule, e.begins, e.ends, e.measured, e.plausible, e.beside, NULL AS verdict
FROM episodes AS e
WHERE e.buckets >= 3 AND (e.rule LIKE 'differs%' OR abs(e.measured - e.plausible) >= rise * e.span)
UNION ALL
SELECT b.name, 'runs backwards', min(b.old_time), max(b.time), min(b.value), max(b.old_value), '', NULL
FROM backward_episodes AS b
GROUP BY b.channel_id, b.name, b.episode
UNION ALL
SELECT j.name, j.rule, NULL, NULL, NULL, NULL, NULL,
       concat_ws(', ', if(j.missing IS NULL, '', 'not ') || 'judged by the rule "' || j.rule || '"', j.missing)
FROM judgements AS j
UNION ALL
SELECT sel.name, NULL, NULL, NULL, NULL, NULL, NULL,
       'not judged, neither level of a tank, nor one of twins, nor of kind counter'
FROM selected AS sel
WHERE sel.name NOT IN (SELECT j.name FROM judgements AS j);

SELECT * EXCLUDE (verdict)
FROM portion_rows
WHERE verdict IS NULL
ORDER BY begins, channel, rule;
