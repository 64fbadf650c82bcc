-- correlation: which channels move with a given one, how strongly, and how long before or after it
--
-- Pearson's correlation on means of "step", at the lag where it is strongest: 1: both rise and fall together; -1: one
-- rises when the other falls. lag_seconds is how long the channel comes after the target: positive: it follows the
-- target; negative: it goes before it. correlation_at_zero is the correlation without a lag, between -1 and 1, too, and
-- pairs counts the means that were compared: 20 at least. A channel that has fewer in common with the target, or is
-- constant, is not judged; nor is any if the target is.
--
-- Parameters
--   since     timestamptz  from this moment on
--   until     timestamptz  before this moment
--   target    channel      name of the given channel
--   channels  text[]       names or patterns to compare with [NULL: all]
--   step      interval     length of a mean [NULL: a 300th of the interval, the sampling interval]
--   max_lag   interval     largest lag [NULL: 20 steps]
--   least_correlation float8  lowest absolute correlation to list [0.5]
-- Legal: step a 1000000th..interval, max_lag 0 s..interval, least_correlation 0..1
-- Portions: channel
-- Cost: one pass over the samples, then steps × lags × channels pairs: 300 × 41 × 250 take 3 s.
-- Example: plantlog ask correlation --from 2026-03-09T10:00Z --to 2026-03-09T11:00Z --target boilerhouse/boiler1/fuel
WITH
chosen AS (
    SELECT step AS step, coalesce(epoch_us(max_lag) // epoch_us(step), 20)::INT AS most
),
-- A positive lag: the channel follows the target by this time.
correlations AS (
    SELECT unnest(lagged_correlations(a.fields, t.fields, epoch_us(since), epoch_us(until), epoch_us(c.step), c.most),
                  recursive := true)
    FROM (SELECT list(g.fields) AS fields
          FROM channels_with_gaps(channels, since, until) AS g
          WHERE g.name <> target
          HAVING count(*) > 0) AS a
    CROSS JOIN fields_of([target], since, until, NULL) AS t
    CROSS JOIN chosen AS c
),
-- If correlations are equal, the smallest lag.
ranked AS (
    SELECT c.*, max(c.r) FILTER (WHERE c.n = 0) OVER (PARTITION BY c.channel_id) AS at_zero,
           row_number() OVER (PARTITION BY c.channel_id ORDER BY round(abs(c.r), 6) DESC, abs(c.n)) AS place
    FROM correlations AS c
    WHERE c.verdict = 0
)
SELECT n.name AS channel, r.r AS correlation, extract(epoch FROM r.n * c.step)::float8 AS lag_seconds,
       r.at_zero AS correlation_at_zero, r.pairs, NULL AS verdict
FROM ranked AS r
JOIN channels_like(channels) AS n ON n.channel_id = r.channel_id
CROSS JOIN chosen AS c
WHERE r.place = 1 AND abs(r.r) >= least_correlation
UNION ALL BY NAME
SELECT n.name AS channel,
       verdict_text(CASE WHEN EXISTS (FROM channels_like([target]) AS t WHERE t.kind <> 'text') THEN v.verdict
                    ELSE 18 END) AS verdict
FROM channels_like(channels) AS n
LEFT JOIN (SELECT c.channel_id, c.verdict FROM correlations AS c WHERE c.verdict > 0) AS v
  ON v.channel_id = n.channel_id
WHERE n.kind <> 'text' AND n.name <> target;

SELECT * EXCLUDE (verdict)
FROM portion_rows
WHERE verdict IS NULL
ORDER BY round(abs(correlation), 6) DESC, channel;
