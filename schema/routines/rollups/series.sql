-- A channel for a chart: at most points buckets (plus one, because buckets start at multiples of their width) over
-- from <= time < to, with the extremes of exactly these samples. Buckets are read from hours, minutes or samples,
-- whichever is the coarsest possible; dirty parts and partial buckets are read from the next finer level. source is the
-- coarsest level that a bucket was read from. Bad samples and NaN count in n only. A bucket without samples has no row,
-- so a gap stays visible. avg is the mean of the samples (samples_1m and samples_1h have the time-weighted one).
-- If samples of the interval were dropped by retention, buckets are at least a minute wide, and the minutes that
-- contain from and to are read whole; if minutes were dropped, hours in the same way.
CREATE OR REPLACE FUNCTION plant.series(channel int, "from" timestamptz, "to" timestamptz, points int DEFAULT 1000)
RETURNS TABLE ("time" timestamptz, min float8, avg float8, max float8, n bigint, n_good bigint, first float8,
               last float8, source text)
LANGUAGE sql STABLE
AS $$
SELECT s.time, s.min, s.avg, s.max, s.n, s.n_good, s.first, s.last, s.source
FROM plant._series(channel, "from", "to", plant.series_width(channel, "from", "to", points)) AS s
$$;
COMMENT ON FUNCTION plant.series IS
    'Chart of a channel: at most about points buckets, with the exact min and max of the samples with from <= time < '
    'to. Read from hours, minutes or samples.';
