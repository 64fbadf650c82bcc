-- first_mover for DuckDB: as ../first_mover.sql, which has the parameters
--
-- Portions: channel
CREATE MACRO first_mover_of(since, until, channels, step, sigmas, reference) AS TABLE
WITH
wanted AS (
    SELECT c.channel_id, c.name, c.kind, c.unit, c.span FROM channels_like(channels) AS c WHERE c.kind <> 'text'
),
means AS (
    SELECT r.channel_id, r.bucket, r.value,
           r.value - lag(r.value) OVER (PARTITION BY r.channel_id ORDER BY r.bucket) AS change
    FROM resampled(channels, since - reference, until,
                   coalesce(step, greatest((until - since) / 300, INTERVAL '1 s')), reference) AS r
),
usual AS (
    SELECT m.channel_id, avg(m.value) AS mean, stddev_pop(m.value) AS spread, stddev_pop(m.change) AS spread_of_change,
           max(m.value) AS high, min(m.value) AS low, max(abs(m.change)) AS largest_change
    FROM means AS m
    WHERE m.bucket < since
    GROUP BY m.channel_id
    HAVING count(*) >= 10
),
-- Limits of the value and of its step. Less than a thousandth of the range is no move; for a counter, only steps count.
limits AS (
    SELECT u.channel_id, u.mean,
           CASE WHEN w.kind <> 'counter'
                THEN greatest(sigmas * u.spread, 1.5 * (u.high - u.mean), 1.5 * (u.mean - u.low), f.floor)
           END AS value_limit,
           greatest(sigmas * u.spread_of_change, 1.5 * u.largest_change, f.floor) AS change_limit
    FROM usual AS u
    JOIN wanted AS w ON w.channel_id = u.channel_id
    CROSS JOIN LATERAL (SELECT greatest(coalesce(w.span, abs(u.mean)) * 1e-3, 1e-9) AS floor) AS f
),
scored AS (
    SELECT m.channel_id, m.bucket, m.value, l.mean, m.value - l.mean AS off,
           greatest(abs(m.value - l.mean) / l.value_limit, abs(m.change) / l.change_limit) AS far
    FROM means AS m
    JOIN limits AS l ON l.channel_id = m.channel_id
    WHERE m.bucket >= since
),
confirmed AS (
    SELECT s.*, count(*) FILTER (WHERE s.far > 1) OVER next_three AS times, max(s.far) OVER next_three AS strongest
    FROM scored AS s
    WINDOW next_three AS (PARTITION BY s.channel_id ORDER BY s.bucket ROWS BETWEEN CURRENT ROW AND 2 FOLLOWING)
),
onsets AS (
    SELECT DISTINCT ON (c.channel_id) c.channel_id, c.bucket, c.mean, c.value, c.off, c.strongest
    FROM confirmed AS c
    WHERE c.far > 1 AND c.times >= 2
    ORDER BY c.channel_id, c.bucket
)
SELECT w.name AS channel, o.bucket AS moved_at, CASE WHEN o.off > 0 THEN 'up' ELSE 'down' END AS direction, o.mean AS usual,
       o.value AS moved_to, unit_at(o.channel_id, o.bucket) AS unit, o.strongest AS times_limit
FROM onsets AS o
JOIN wanted AS w ON w.channel_id = o.channel_id;

CREATE MACRO first_mover(
    since, until, channels := NULL, step := NULL, sigmas := 6, reference := '1 hour'
) AS TABLE
WITH found AS (
    FROM first_mover_of(since::TIMESTAMPTZ, until::TIMESTAMPTZ, channels::TEXT[], step::INTERVAL, sigmas::DOUBLE,
                        reference::INTERVAL)
)
SELECT row_number() OVER (ORDER BY moved_at, round(times_limit, 6) DESC, channel) AS place, *
FROM found
ORDER BY place;
