-- excursions: where channels left their usual band: spikes, swings and drift
--
-- Each channel is split into three frequency classes, each compared with its own spread before since:
--   fast    samples compared with the means of "short" around them: spikes, dropouts, noise
--   medium  means of "short" compared with those of "long": swings, steps
--   slow    means of "long" compared with the mean before since: drift, another operating point
-- Of equal peaks, the first one is shown. sigmas_at_peak is NULL, and the row last, if the channel did not move before
-- since: nothing can be measured by a spread of zero.
--
-- Parameters
--   since      timestamptz  from this moment on
--   until      timestamptz  before this moment
--   channels   text[]       names or patterns [all analog ones]
--   sigmas     float8       minimum deviation in spreads; half of it for slow [8]
--   short      interval     length of a short mean [10 s]
--   long       interval     length of a long mean [5 min]
--   reference  interval     time before since from which the usual band is learned [1 h]
-- Reads from: since - reference
-- Judges: analog channels with samples before since
-- Cost: one pass over the channels' samples from since - reference to until: 3 s per million samples.
-- Example: SELECT * FROM plant.excursions('2026-03-09 10:00+00', '2026-03-09 11:00+00', sigmas => 10);
CREATE OR REPLACE FUNCTION plant.excursions(
    since timestamptz, until timestamptz, channels text[] DEFAULT NULL, sigmas float8 DEFAULT 8,
    short interval DEFAULT '10 s', long interval DEFAULT '5 min', reference interval DEFAULT '1 hour'
)
RETURNS TABLE (
    channel text, class text, episodes bigint, first_at timestamptz, last_at timestamptz, usual_period interval,
    longest interval, peak float8, peak_at timestamptz, sigmas_at_peak float8
)
LANGUAGE sql STABLE
AS $$
WITH
wanted AS (
    SELECT c.channel_id, c.name, c.span FROM plant.channels_like(channels) AS c WHERE c.kind = 'analog'
),
readings AS (
    SELECT w.channel_id, s.time, s.value, date_bin(short, s.time, since) AS short_bin,
           date_bin(long, s.time, since) AS long_bin
    FROM wanted AS w
    CROSS JOIN LATERAL plant.good_samples(w.channel_id, since - reference, until) AS s
),
short_means AS (
    SELECT r.channel_id, r.long_bin, r.short_bin, avg(r.value) AS mean,
           -- A spike must not hide itself by pulling its own mean.
           percentile_cont(0.5) WITHIN GROUP (ORDER BY r.value) AS middle
    FROM readings AS r
    GROUP BY r.channel_id, r.long_bin, r.short_bin
),
long_means AS (
    SELECT m.channel_id, m.long_bin, avg(m.mean) AS mean FROM short_means AS m GROUP BY m.channel_id, m.long_bin
),
bases AS (
    SELECT l.channel_id, avg(l.mean) AS mean FROM long_means AS l WHERE l.long_bin < since GROUP BY l.channel_id
),
parts AS (
    SELECT r.channel_id, 'fast' AS class, r.time, r.value - m.middle AS value, short AS apart
    FROM readings AS r
    JOIN short_means AS m ON m.channel_id = r.channel_id AND m.short_bin = r.short_bin
    UNION ALL
    SELECT m.channel_id, 'medium', m.short_bin, m.mean - l.mean, long / 4
    FROM short_means AS m
    JOIN long_means AS l ON l.channel_id = m.channel_id AND l.long_bin = m.long_bin
    UNION ALL
    SELECT l.channel_id, 'slow', l.long_bin, l.mean - b.mean, 2 * long
    FROM long_means AS l
    JOIN bases AS b ON b.channel_id = l.channel_id
),
usual AS (
    SELECT p.channel_id, p.class, sqrt(avg(p.value ^ 2)) AS spread, max(abs(p.value)) AS largest
    FROM parts AS p
    WHERE p.time < since
    GROUP BY p.channel_id, p.class
    HAVING count(*) >= 6
),
whole AS (
    SELECT r.channel_id, stddev_pop(r.value) FILTER (WHERE r.time < since) AS spread,
           max(abs(r.value)) * 2 ^ -52 AS rounding
    FROM readings AS r
    GROUP BY r.channel_id
),
-- A ten-thousandth of the range is no excursion, however quiet the channel was before; nor are rounding errors of float8.
-- The spread of a few slow means is uncertain: at least half of the whole spread is used.
limits AS (
    SELECT u.channel_id, u.class, u.largest,
           greatest(m.spread, h.rounding, 1e-12) AS spread, m.spread > greatest(1e6 * h.rounding, 1e-12) AS is_known
    FROM usual AS u
    JOIN whole AS h ON h.channel_id = u.channel_id
    JOIN wanted AS w ON w.channel_id = u.channel_id
    CROSS JOIN LATERAL (
        SELECT greatest(u.spread, CASE u.class WHEN 'fast' THEN 0 WHEN 'medium' THEN h.spread / 4 ELSE h.spread / 2 END,
                        coalesce(w.span, 0) * 1e-4) AS spread
    ) AS m
),
outside AS (
    SELECT p.channel_id, p.class, p.time, p.value, p.apart, abs(p.value) / l.spread AS far, l.is_known,
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
           bool_and(n.is_known) AS is_known,
           (array_agg(n.value ORDER BY round(n.far::numeric, 6) DESC, n.time))[1] AS peak,
           (array_agg(n.time ORDER BY round(n.far::numeric, 6) DESC, n.time))[1] AS peak_at
    FROM numbered AS n
    GROUP BY n.channel_id, n.class, n.episode
),
spaced AS (
    SELECT e.*, e.begins - lag(e.begins) OVER (PARTITION BY e.channel_id, e.class ORDER BY e.begins) AS since_last
    FROM episodes AS e
)
SELECT w.name, s.class, count(*), min(s.begins), max(s.begins),
       percentile_cont(0.5) WITHIN GROUP (ORDER BY s.since_last), max(s.ends - s.begins),
       (array_agg(s.peak ORDER BY round(s.far::numeric, 6) DESC, s.peak_at))[1],
       (array_agg(s.peak_at ORDER BY round(s.far::numeric, 6) DESC, s.peak_at))[1],
       CASE WHEN bool_and(s.is_known) THEN max(s.far) END
FROM spaced AS s
JOIN wanted AS w ON w.channel_id = s.channel_id
GROUP BY w.name, s.class
ORDER BY round(CASE WHEN bool_and(s.is_known) THEN max(s.far) END::numeric, 6) DESC NULLS LAST, w.name, s.class
$$;
