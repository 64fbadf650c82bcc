-- chart_steps: the points of a chart of one channel: steps of equal length, empty where samples are missing
--
-- A step summarises its samples. A step without samples has the last value, because many channels report changes only.
-- After a Bad sample, or a gap of plant.chart_gaps that was not backfilled, steps are empty until the next sample.
--
-- Parameters
--   channel  int          id
--   since    timestamptz  from the step that contains this moment
--   until    timestamptz  before this moment (never later than now, or than the channel's retirement)
--   points   int          maximum number of steps; their length is that of plant.series, at least 1 s
-- Cost: that of plant.series, and one row per step.
-- Example: SELECT * FROM plant.chart_steps(17, '2026-03-09 10:00+00', '2026-03-09 11:00+00', 500);
CREATE OR REPLACE FUNCTION plant.chart_steps(channel int, since timestamptz, until timestamptz, points int)
RETURNS TABLE ("time" timestamptz, low float8, mean float8, high float8, n bigint, n_good bigint)
LANGUAGE sql STABLE
AS $$
WITH
width AS (
    SELECT greatest(plant.series_width(channel, since, until, greatest(points, 1)), INTERVAL '1 s') AS step
),
-- Steps start where the buckets of plant.series do.
bounds AS MATERIALIZED (
    SELECT w.step, date_bin(w.step, since, '2000-01-01 00:00:00+00') AS first,
           least(until, now(), c.retired_at, s.retired_at) AS last
    FROM width AS w
    JOIN plant.channel AS c ON c.id = channel
    JOIN plant.source AS s ON s.id = c.source_id
),
stored_steps AS (
    SELECT s.time AS bucket, s.min AS low, s.max AS high, s.avg AS mean, s.last, s.n, s.n_good
    FROM bounds AS b
    CROSS JOIN LATERAL plant._series(channel, b.first, b.last, b.step) AS s
),
missing AS MATERIALIZED (
    SELECT coalesce(range_agg(tstzrange(g.from_time, g.to_time)), '{}') AS ranges
    FROM bounds AS b
    CROSS JOIN LATERAL plant.chart_gaps(channel, b.first - INTERVAL '24 hours', b.last) AS g
    WHERE NOT g.backfilled
),
-- The value that held before the first step, unless there was a gap since. Larger ones do not hold, as in minutes.
before AS (
    SELECT b.first - b.step AS bucket, CASE WHEN l.status >= 0 AND abs(l.value) <= 1e280 THEN l.value END AS last
    FROM bounds AS b
    CROSS JOIN LATERAL plant.held_before(channel, b.first - INTERVAL '24 hours', b.first) AS l
    CROSS JOIN missing AS m
    WHERE NOT m.ranges && tstzrange(l.time, b.first, '()')
),
steps AS (
    SELECT t.bucket, g.low, g.mean, g.high, g.n, g.n_good, g.last,
           g.n IS NULL AND m.ranges && tstzrange(t.bucket, t.bucket + b.step) AS lost
    FROM bounds AS b
    CROSS JOIN missing AS m
    CROSS JOIN LATERAL generate_series(b.first, b.last - INTERVAL '1 microsecond', b.step) AS t (bucket)
    LEFT JOIN stored_steps AS g ON g.bucket = t.bucket
    UNION ALL
    SELECT b.bucket, NULL, NULL, NULL, 1, 1, b.last, false FROM before AS b
),
-- Each step with samples or with a gap begins a block, in which its value holds.
blocks AS (
    SELECT s.*, count(*) FILTER (WHERE s.n IS NOT NULL OR s.lost) OVER (ORDER BY s.bucket) AS block FROM steps AS s
),
held_steps AS (
    SELECT k.*, first_value(k.last) OVER (PARTITION BY k.block ORDER BY k.bucket) AS holds FROM blocks AS k
)
SELECT h.bucket, coalesce(h.low, h.holds), CASE WHEN h.n IS NULL THEN h.holds ELSE h.mean END,
       coalesce(h.high, h.holds), coalesce(h.n, 0), coalesce(h.n_good, 0)
FROM held_steps AS h
CROSS JOIN bounds AS b
WHERE h.bucket >= b.first
ORDER BY h.bucket
$$;
