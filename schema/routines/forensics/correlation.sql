-- correlation: which channels move with a given one, how strongly, and how long before or after it
--
-- Pearson's correlation on means of "step", at the lag where it is strongest.
--
-- Parameters
--   since     timestamptz  from this moment on
--   until     timestamptz  before this moment
--   target    text         name of the given channel
--   channels  text[]       names or patterns to compare with [all]
--   step      interval     length of a mean [a 300th of the interval, at least 1 s]
--   max_lag   interval     largest lag [20 steps]
--   least_correlation float8  lowest absolute correlation to list [0.5]
-- Judges: numeric channels
-- Cost: one pass over the samples, then steps × lags × channels pairs: 300 × 41 × 250 take 3 s.
-- Example: SELECT * FROM plant.correlation('2026-03-09 10:00+00', '2026-03-09 11:00+00', 'boilerhouse/boiler1/fuel');
CREATE OR REPLACE FUNCTION plant.correlation(
    since timestamptz, until timestamptz, target text, channels text[] DEFAULT NULL, step interval DEFAULT NULL,
    max_lag interval DEFAULT NULL, least_correlation float8 DEFAULT 0.5
)
RETURNS TABLE (channel text, correlation float8, lag_seconds float8, correlation_at_zero float8, pairs bigint)
LANGUAGE sql STABLE
AS $$
WITH
chosen AS (
    SELECT coalesce(step, greatest((until - since) / 300, INTERVAL '1 s')) AS step
),
lags AS (
    SELECT n.n, n.n * c.step AS by
    FROM chosen AS c
    CROSS JOIN LATERAL (
        SELECT coalesce(floor(extract(epoch FROM max_lag) / extract(epoch FROM c.step)), 20)::int AS most
    ) AS m
    CROSS JOIN LATERAL generate_series(-m.most, m.most) AS n (n)
),
wanted AS (
    SELECT c.channel_id, c.name FROM plant.channels_like(channels) AS c WHERE c.kind <> 'text' AND c.name <> target
),
means AS MATERIALIZED (
    SELECT r.channel_id, r.bucket, r.value
    FROM plant.resampled(channels, since, until, coalesce(step, greatest((until - since) / 300, INTERVAL '1 s'))) AS r
    JOIN wanted AS w ON w.channel_id = r.channel_id
),
target_means AS MATERIALIZED (
    SELECT r.bucket, r.value
    FROM plant.resampled(ARRAY[target], since, until,
                         coalesce(step, greatest((until - since) / 300, INTERVAL '1 s'))) AS r
),
-- A positive lag: the channel follows the target by this time.
shifted AS MATERIALIZED (
    SELECT l.n, l.by, t.bucket + l.by AS bucket, t.value
    FROM target_means AS t
    CROSS JOIN lags AS l
),
correlations AS (
    SELECT m.channel_id, s.n, s.by, corr(m.value, s.value) AS r, count(*) AS pairs
    FROM shifted AS s
    JOIN means AS m ON m.bucket = s.bucket
    GROUP BY m.channel_id, s.n, s.by
    HAVING count(*) >= 20
),
-- If correlations are equal, the smallest lag.
ranked AS (
    SELECT c.*, max(c.r) FILTER (WHERE c.n = 0) OVER (PARTITION BY c.channel_id) AS at_zero,
           row_number() OVER (PARTITION BY c.channel_id ORDER BY round(abs(c.r)::numeric, 6) DESC, abs(c.n)) AS place
    FROM correlations AS c
    WHERE c.r IS NOT NULL
)
SELECT w.name, r.r, extract(epoch FROM r.by)::float8, r.at_zero, r.pairs
FROM ranked AS r
JOIN wanted AS w ON w.channel_id = r.channel_id
WHERE r.place = 1 AND abs(r.r) >= least_correlation
ORDER BY round(abs(r.r)::numeric, 6) DESC, w.name
$$;
