-- first_mover: in which order channels left their usual band in an upset, earliest first
--
-- The usual band of a channel is given by its mean and its steps before since. A channel has moved when its value or its
-- step deviates by more than "sigmas" spreads, and by more than 1.5 times its maximum deviation before since, in two of
-- three buckets. A single step by noise does not count.
--
-- Parameters
--   since      timestamptz  start of the search, shortly before the upset
--   until      timestamptz  before this moment
--   channels   text[]       names or patterns [all]
--   step       interval     length of a mean [a 300th of the interval, at least 1 s]
--   sigmas     float8       minimum deviation in spreads [6]
--   reference  interval     time before since from which the usual band is learned [1 h]
-- Reads from: since - reference
-- Judges: numeric channels with samples before since
-- Cost: one pass over the samples from since - reference to until and one row per bucket and channel: 2 s per million samples.
-- Example: SELECT * FROM plant.first_mover('2026-03-09 10:00+00', '2026-03-09 10:30+00') LIMIT 10;
CREATE OR REPLACE FUNCTION plant.first_mover(
    since timestamptz, until timestamptz, channels text[] DEFAULT NULL, step interval DEFAULT NULL,
    sigmas float8 DEFAULT 6, reference interval DEFAULT '1 hour'
)
RETURNS TABLE (
    place bigint, channel text, moved_at timestamptz, direction text, usual float8, moved_to float8, unit text,
    times_limit float8
)
LANGUAGE sql STABLE
AS $$
WITH
wanted AS (
    SELECT c.channel_id, c.name, c.kind, c.unit, c.span FROM plant.channels_like(channels) AS c WHERE c.kind <> 'text'
),
means AS (
    SELECT r.channel_id, r.bucket, r.value,
           r.value - lag(r.value) OVER (PARTITION BY r.channel_id ORDER BY r.bucket) AS change
    FROM plant.resampled(channels, since - reference, until,
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
SELECT row_number() OVER (ORDER BY o.bucket, round(o.strongest::numeric, 6) DESC, w.name), w.name, o.bucket,
       CASE WHEN o.off > 0 THEN 'up' ELSE 'down' END, o.mean, o.value, plant.unit_at(o.channel_id, o.bucket), o.strongest
FROM onsets AS o
JOIN wanted AS w ON w.channel_id = o.channel_id
ORDER BY 1
$$;
