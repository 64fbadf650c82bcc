-- correlation for DuckDB: as ../correlation.sql, which has the parameters
--
-- Portions: channel
CREATE MACRO correlation_of(since, until, target, channels, step, max_lag, least_correlation) AS TABLE
WITH
chosen AS (
    SELECT c.step, coalesce(floor(extract(epoch FROM max_lag) / extract(epoch FROM c.step)), 20)::INT AS most
    FROM (SELECT coalesce(step, greatest((until - since) / 300, INTERVAL '1 s')) AS step) AS c
),
wanted AS (
    SELECT c.channel_id, c.name FROM channels_like(channels) AS c WHERE c.kind <> 'text' AND c.name <> target
),
means AS (
    SELECT r.channel_id, (epoch_us(r.bucket) - epoch_us(since)) // epoch_us(c.step) AS number, r.value
    FROM resampled(channels, since, until, coalesce(step, greatest((until - since) / 300, INTERVAL '1 s')),
                   INTERVAL '1 hour') AS r
    CROSS JOIN chosen AS c
),
series AS (
    SELECT m.channel_id, list(m.number) AS numbers, list(m.value) AS means
    FROM means AS m
    JOIN wanted AS w ON w.channel_id = m.channel_id
    GROUP BY m.channel_id
),
target_series AS MATERIALIZED (
    SELECT list((epoch_us(r.bucket) - epoch_us(since)) // epoch_us(c.step)) AS numbers, list(r.value) AS means
    FROM resampled([target], since, until, coalesce(step, greatest((until - since) / 300, INTERVAL '1 s')),
                   INTERVAL '1 hour') AS r
    CROSS JOIN chosen AS c
    HAVING count(*) > 0
),
-- A positive lag: the channel follows the target by this time.
correlations AS (
    SELECT s.channel_id, unnest(lagged_correlations(s.numbers, s.means, t.numbers, t.means, c.most), recursive := true)
    FROM series AS s
    CROSS JOIN target_series AS t
    CROSS JOIN chosen AS c
),
-- If correlations are equal, the smallest lag.
ranked AS (
    SELECT c.*, max(c.r) FILTER (WHERE c.n = 0) OVER (PARTITION BY c.channel_id) AS at_zero,
           row_number() OVER (PARTITION BY c.channel_id ORDER BY round(abs(c.r), 6) DESC, abs(c.n)) AS place
    FROM correlations AS c
)
SELECT w.name AS channel, r.r AS correlation, extract(epoch FROM r.n * c.step)::float8 AS lag_seconds,
       r.at_zero AS correlation_at_zero, r.pairs
FROM ranked AS r
JOIN wanted AS w ON w.channel_id = r.channel_id
CROSS JOIN chosen AS c
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
