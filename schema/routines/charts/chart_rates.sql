-- chart_rates: the points of a chart of how fast a counter increases
--
-- A step is at least a minute long and ends with its last reading: the rate is that since the last reading before the
-- step, whenever that was. A step without a reading has no row; in a gap of plant.chart_gaps that was not backfilled,
-- it has one without a rate.
--
-- Parameters
--   channel  int          id
--   since    timestamptz  from the step that contains this moment
--   until    timestamptz  before this moment
--   points   int          maximum number of steps; their length is that of plant.series
-- Cost: that of plant.increases_between.
-- Example: SELECT * FROM plant.chart_rates(17, '2026-03-09 10:00+00', '2026-03-09 11:00+00', 500);
CREATE OR REPLACE FUNCTION plant.chart_rates(channel int, since timestamptz, until timestamptz, points int)
RETURNS TABLE ("time" timestamptz, rate float8)
LANGUAGE sql STABLE
SET jit = off -- and so not inlined: planned by itself, it reads one channel
AS $$
WITH width AS (
    SELECT greatest(plant.series_width(until - since, greatest(points, 1)), INTERVAL '1 minute') AS step
),
increase AS (
    SELECT i.bucket, i.increase, i.seconds, w.step
    FROM width AS w
    CROSS JOIN LATERAL plant.increases_between(
        INTERVAL '1 minute', date_bin(w.step, since, '2000-01-01 00:00:00+00'), until) AS i
    WHERE w.step < INTERVAL '1 hour' AND i.channel_id = channel
    UNION ALL
    SELECT i.bucket, i.increase, i.seconds, w.step
    FROM width AS w
    CROSS JOIN LATERAL plant.increases_between(
        INTERVAL '1 hour', date_bin(w.step, since, '2000-01-01 00:00:00+00'), until) AS i
    WHERE w.step >= INTERVAL '1 hour' AND i.channel_id = channel
),
rates AS (
    SELECT b.time, sum(i.increase) / nullif(sum(i.seconds), 0) AS rate
    FROM increase AS i
    CROSS JOIN LATERAL (SELECT date_bin(i.step, i.bucket, '2000-01-01 00:00:00+00') AS time) AS b
    GROUP BY b.time
),
lost_steps AS (
    SELECT DISTINCT t.time
    FROM width AS w
    CROSS JOIN plant.chart_gaps(channel, since, least(until, now())) AS g
    CROSS JOIN LATERAL generate_series(date_bin(w.step, greatest(g.from_time, since), '2000-01-01 00:00:00+00'),
                                       least(g.to_time, until, now()) - INTERVAL '1 microsecond', w.step) AS t (time)
    WHERE NOT g.backfilled AND NOT EXISTS (SELECT FROM rates AS r WHERE r.time = t.time)
)
SELECT r.time, r.rate FROM rates AS r
UNION ALL
SELECT l.time, NULL FROM lost_steps AS l
ORDER BY time
$$;
