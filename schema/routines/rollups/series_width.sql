-- The smallest conventional bucket width (1 s, 5 s, 1 min …) that gives at most a number of buckets.
CREATE OR REPLACE FUNCTION plant.series_width(span interval, points int) RETURNS interval
LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT INTERVAL '1 second' * coalesce(
        (SELECT min(w.seconds)
         FROM unnest(ARRAY[0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800,
                           3600, 7200, 10800, 21600, 43200]::float8[]) AS w (seconds)
         WHERE w.seconds >= date_part('epoch', span) / points),
        86400 * ceil(date_part('epoch', span) / points / 86400));
END;
