-- excursions for DuckDB: as ../excursions.sql, which has the parameters
--
-- Portions: channel
CREATE MACRO excursions_of(since, until, channels, sigmas, short, long, reference) AS TABLE
WITH
wanted AS (
    SELECT c.channel_id, c.name, c.span FROM channels_like(channels) AS c WHERE c.kind = 'analog'
),
rows AS MATERIALIZED (
    SELECT b.channel_id, date_bin(long, b.first_time, since) AS long_bin, b.bucket AS short_bin, b.whole, b.good, b.good_sum,
           b.variance, b.low, b.high, b.middle, b.good_values
    FROM bins_of(channels, since - reference, until, short, long, since) AS b
    WHERE b.good > 0
),
-- All that is asked of single samples, but where there is an excursion.
bins AS MATERIALIZED (
    SELECT b.*, greatest(b.high - b.middle, b.middle - b.low) AS farthest,
           CASE WHEN b.low < b.high THEN b.variance + (b.mean - b.middle) * (b.mean - b.middle) ELSE 0 END AS square
    -- A spike must not hide itself by pulling its own mean.
    FROM (SELECT r.channel_id, r.long_bin, r.short_bin, r.good AS n, r.good_sum / r.good AS mean, r.variance, r.low, r.high, r.middle
          FROM rows AS r
          WHERE r.whole
          UNION ALL
          SELECT p.channel_id, p.long_bin, p.short_bin, count(*), avg(p.value), var_pop(p.value), min(p.value), max(p.value),
                 quantile_cont(p.value, 0.5)
          FROM (SELECT r.channel_id, r.long_bin, r.short_bin, unnest(r.good_values) AS value FROM rows AS r WHERE NOT r.whole) AS p
          GROUP BY p.channel_id, p.long_bin, p.short_bin) AS b
),
long_means AS MATERIALIZED (
    SELECT b.channel_id, b.long_bin, avg(b.mean) AS mean FROM bins AS b GROUP BY b.channel_id, b.long_bin
),
bases AS (
    SELECT l.channel_id, avg(l.mean) AS mean FROM long_means AS l WHERE l.long_bin < since GROUP BY l.channel_id
),
parts AS MATERIALIZED (
    SELECT b.channel_id, 'medium' AS class, b.short_bin AS time, b.mean - l.mean AS value, to_microseconds(epoch_us(long) // 4) AS apart
    FROM bins AS b
    JOIN long_means AS l ON l.channel_id = b.channel_id AND l.long_bin = b.long_bin
    UNION ALL
    SELECT l.channel_id, 'slow', l.long_bin, l.mean - b.mean, 2 * long
    FROM long_means AS l
    JOIN bases AS b ON b.channel_id = l.channel_id
),
usual AS (
    SELECT b.channel_id, 'fast' AS class, sqrt(sum(b.n * b.square) / sum(b.n)) AS spread, max(b.farthest) AS largest
    FROM bins AS b
    WHERE b.short_bin < since
    GROUP BY b.channel_id
    HAVING sum(b.n) >= 6
    UNION ALL
    SELECT p.channel_id, p.class, sqrt(avg(p.value * p.value)), max(abs(p.value))
    FROM parts AS p
    WHERE p.time < since
    GROUP BY p.channel_id, p.class
    HAVING count(*) >= 6
),
reference_means AS (
    SELECT b.channel_id, sum(b.n * b.mean) / sum(b.n) AS mean, min(b.low) = max(b.high) AS constant
    FROM bins AS b
    WHERE b.short_bin < since
    GROUP BY b.channel_id
),
whole AS (
    SELECT b.channel_id, max(greatest(abs(b.low), abs(b.high))) * pow(2, -52) AS rounding,
           CASE WHEN any_value(m.constant) THEN 0
                ELSE sqrt(sum(b.n * (b.variance + (b.mean - m.mean) * (b.mean - m.mean))) FILTER (WHERE b.short_bin < since)
                          / sum(b.n) FILTER (WHERE b.short_bin < since)) END AS spread
    FROM bins AS b
    JOIN reference_means AS m ON m.channel_id = b.channel_id
    GROUP BY b.channel_id
),
-- A ten-thousandth of the range is no excursion, however quiet the channel was before; nor are rounding errors of float8.
-- The spread of a few slow means is uncertain: at least half of the whole spread is used.
spreads AS (
    SELECT u.channel_id, u.class, u.largest,
           greatest(u.spread, CASE u.class WHEN 'fast' THEN 0 WHEN 'medium' THEN h.spread / 4 ELSE h.spread / 2 END,
                    coalesce(w.span, 0) * 1e-4, h.rounding, 1e-12) AS spread
    FROM usual AS u
    JOIN whole AS h ON h.channel_id = u.channel_id
    JOIN wanted AS w ON w.channel_id = u.channel_id
),
limits AS MATERIALIZED (
    SELECT s.channel_id, s.class, s.spread,
           greatest(sigmas * CASE s.class WHEN 'slow' THEN 0.5 ELSE 1 END * s.spread, 1.5 * s.largest) AS far
    FROM spreads AS s
),
spiking AS MATERIALIZED (
    SELECT b.channel_id, b.short_bin, b.long_bin, b.middle, l.spread, l.far
    FROM bins AS b
    JOIN limits AS l ON l.channel_id = b.channel_id AND l.class = 'fast'
    WHERE b.short_bin >= since AND b.farthest > l.far
),
-- Only of these, samples are read once more.
spikes AS (
    SELECT unnest(samples_within(list({'channel_id': b.channel_id, 'begins': b.begins, 'ends': b.ends})), recursive := true)
    FROM (SELECT b.channel_id, list(epoch_us(greatest(b.short_bin, b.long_bin))) AS begins,
                 list(epoch_us(least(b.short_bin + short, b.long_bin + long))) AS ends
          FROM spiking AS b
          GROUP BY b.channel_id) AS b
    HAVING count(*) > 0
),
far_off AS (
    SELECT s.channel_id, 'fast' AS class, s.time, s.value - b.middle AS value, short AS apart, b.spread
    FROM spikes AS s
    JOIN spiking AS b ON b.channel_id = s.channel_id AND b.short_bin = date_bin(short, s.time, since)
                     AND b.long_bin = date_bin(long, s.time, since)
    WHERE abs(s.value - b.middle) > b.far AND s.time < until
    UNION ALL
    SELECT p.channel_id, p.class, p.time, p.value, p.apart, l.spread
    FROM parts AS p
    JOIN limits AS l ON l.channel_id = p.channel_id AND l.class = p.class
    WHERE p.time >= since AND abs(p.value) > l.far
),
outside AS (
    SELECT f.channel_id, f.class, f.time, f.value, abs(f.value) / f.spread AS far,
           f.time - lag(f.time) OVER (PARTITION BY f.channel_id, f.class ORDER BY f.time) > f.apart AS begins
    FROM far_off AS f
),
numbered AS (
    SELECT o.*, count(*) FILTER (WHERE o.begins) OVER (PARTITION BY o.channel_id, o.class ORDER BY o.time) AS episode
    FROM outside AS o
),
episodes AS (
    SELECT n.channel_id, n.class, n.episode, min(n.time) AS begins, max(n.time) AS ends, max(n.far) AS far,
           arg_max(n.value, n.far) AS peak, arg_max(n.time, n.far) AS peak_at
    FROM numbered AS n
    GROUP BY n.channel_id, n.class, n.episode
),
spaced AS (
    SELECT e.*, e.begins - lag(e.begins) OVER (PARTITION BY e.channel_id, e.class ORDER BY e.begins) AS since_last
    FROM episodes AS e
)
SELECT w.name AS channel, s.class, count(*) AS episodes, min(s.begins) AS first_at, max(s.begins) AS last_at,
       to_microseconds(quantile_cont(epoch_us(s.since_last)::DOUBLE, 0.5)::BIGINT) AS usual_period,
       max(s.ends - s.begins) AS longest, arg_max(s.peak, s.far) AS peak, arg_max(s.peak_at, s.far) AS peak_at,
       max(s.far) AS sigmas_at_peak
FROM spaced AS s
JOIN wanted AS w ON w.channel_id = s.channel_id
GROUP BY w.name, s.class;

CREATE MACRO excursions(
    since, until, channels := NULL, sigmas := 8, short := '10 s', long := '5 min', reference := '1 hour'
) AS TABLE
WITH found AS (
    FROM excursions_of(since::TIMESTAMPTZ, until::TIMESTAMPTZ, channels::TEXT[], sigmas::DOUBLE, short::INTERVAL,
                       long::INTERVAL, reference::INTERVAL)
)
SELECT * FROM found
ORDER BY round(sigmas_at_peak, 6) DESC, channel, class;
