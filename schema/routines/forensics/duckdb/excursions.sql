-- excursions for DuckDB: as ../excursions.sql, which has the parameters
--
-- Portions: channel
CREATE MACRO excursions_of(since, until, channels, sigmas, short, long, reference) AS TABLE
WITH
wanted AS (
    SELECT c.channel_id, c.name, c.span FROM channels_like(channels) AS c WHERE c.kind = 'analog'
),
readings AS MATERIALIZED (
    SELECT s.channel_id, s.time, s.value, date_bin(short, s.time, since) AS short_bin,
           date_bin(long, s.time, since) AS long_bin
    FROM good_samples(channels, since - reference, until) AS s
    WHERE s.channel_id IN (SELECT w.channel_id FROM wanted AS w)
),
short_means AS MATERIALIZED (
    SELECT r.channel_id, r.long_bin, r.short_bin, avg(r.value) AS mean,
           -- A spike must not hide itself by pulling its own mean.
           quantile_cont(r.value, 0.5) AS middle
    FROM readings AS r
    GROUP BY r.channel_id, r.long_bin, r.short_bin
),
long_means AS MATERIALIZED (
    SELECT m.channel_id, m.long_bin, avg(m.mean) AS mean FROM short_means AS m GROUP BY m.channel_id, m.long_bin
),
bases AS (
    SELECT l.channel_id, avg(l.mean) AS mean FROM long_means AS l WHERE l.long_bin < since GROUP BY l.channel_id
),
parts AS (
    SELECT r.channel_id, 'fast' AS class, r.time, r.value - m.middle AS value, short AS apart
    FROM readings AS r
    JOIN short_means AS m ON m.channel_id = r.channel_id AND m.short_bin = r.short_bin AND m.long_bin = r.long_bin
    UNION ALL
    SELECT m.channel_id, 'medium', m.short_bin, m.mean - l.mean, to_microseconds(epoch_us(long) // 4)
    FROM short_means AS m
    JOIN long_means AS l ON l.channel_id = m.channel_id AND l.long_bin = m.long_bin
    UNION ALL
    SELECT l.channel_id, 'slow', l.long_bin, l.mean - b.mean, 2 * long
    FROM long_means AS l
    JOIN bases AS b ON b.channel_id = l.channel_id
),
usual AS (
    SELECT p.channel_id, p.class, sqrt(avg(p.value * p.value)) AS spread, max(abs(p.value)) AS largest
    FROM parts AS p
    WHERE p.time < since
    GROUP BY p.channel_id, p.class
    HAVING count(*) >= 6
),
whole AS (
    SELECT r.channel_id, stddev_pop(CASE WHEN r.time < since THEN r.value END) AS spread,
           max(abs(r.value)) * pow(2, -52) AS rounding
    FROM readings AS r
    GROUP BY r.channel_id
),
-- A ten-thousandth of the range is no excursion, however quiet the channel was before; nor are rounding errors of float8.
-- The spread of a few slow means is uncertain: at least half of the whole spread is used.
limits AS (
    SELECT u.channel_id, u.class, u.largest,
           greatest(u.spread, CASE u.class WHEN 'fast' THEN 0 WHEN 'medium' THEN h.spread / 4 ELSE h.spread / 2 END,
                    coalesce(w.span, 0) * 1e-4, h.rounding, 1e-12) AS spread
    FROM usual AS u
    JOIN whole AS h ON h.channel_id = u.channel_id
    JOIN wanted AS w ON w.channel_id = u.channel_id
),
outside AS (
    SELECT p.channel_id, p.class, p.time, p.value, p.apart, abs(p.value) / l.spread AS far,
           p.time - lag(p.time) OVER (PARTITION BY p.channel_id, p.class ORDER BY p.time) > p.apart AS begins
    FROM parts AS p
    JOIN limits AS l ON l.channel_id = p.channel_id AND l.class = p.class
    WHERE p.time >= since
      AND abs(p.value) > greatest(sigmas * CASE p.class WHEN 'slow' THEN 0.5 ELSE 1 END * l.spread, 1.5 * l.largest)
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
ORDER BY sigmas_at_peak DESC, channel;
