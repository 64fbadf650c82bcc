-- correlation for DuckDB: as ../correlation.sql, which has the parameters
--
-- Portions: channel, in bins
CREATE MACRO correlation_of(since, until, target, channels, step, max_lag, least_correlation) AS TABLE
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
    CROSS JOIN LATERAL (SELECT unnest(generate_series(-m.most, m.most)) AS n) AS n
),
wanted AS (
    SELECT c.channel_id, c.name FROM channels_like(channels) AS c WHERE c.kind <> 'text' AND c.name <> target
),
means AS MATERIALIZED (
    SELECT r.channel_id, r.bucket, r.value
    FROM resampled(channels, since, until, coalesce(step, greatest((until - since) / 300, INTERVAL '1 s')),
                   INTERVAL '1 hour') AS r
    JOIN wanted AS w ON w.channel_id = r.channel_id
),
target_means AS MATERIALIZED (
    SELECT r.bucket, r.value
    FROM resampled([target], since, until, coalesce(step, greatest((until - since) / 300, INTERVAL '1 s')),
                   INTERVAL '1 hour') AS r
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
           row_number() OVER (PARTITION BY c.channel_id ORDER BY round(abs(c.r), 6) DESC, abs(c.n)) AS place
    FROM correlations AS c
    WHERE NOT isnan(c.r)
)
SELECT w.name AS channel, r.r AS correlation, extract(epoch FROM r.by)::float8 AS lag_seconds,
       r.at_zero AS correlation_at_zero, r.pairs
FROM ranked AS r
JOIN wanted AS w ON w.channel_id = r.channel_id
WHERE r.place = 1 AND abs(r.r) >= least_correlation;

CREATE MACRO correlation(
    since, until, target, channels := NULL, step := NULL, max_lag := NULL, least_correlation := 0.5
) AS TABLE
WITH found AS (
    FROM correlation_of(since::TIMESTAMPTZ, until::TIMESTAMPTZ, target::TEXT, channels::TEXT[], step::INTERVAL, max_lag::INTERVAL,
                        least_correlation::DOUBLE)
)
FROM found
ORDER BY round(abs(correlation), 6) DESC, channel;
