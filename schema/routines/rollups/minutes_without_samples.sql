-- Minutes that touch some ranges and of which samples are not stored any more, because retention dropped them: fewer
-- are stored than were counted, or their extremes are not. Nothing is read of times that retention has not reached, or
-- of which the session was given the samples.
CREATE OR REPLACE FUNCTION plant.minutes_without_samples(channel int, ranges tstzmultirange) RETURNS tstzmultirange
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog
SET plan_cache_mode = force_custom_plan -- chunks are known to the planner by their times
SET jit = off
SET max_parallel_workers_per_gather = 0
AS $$
DECLARE
    until CONSTANT timestamptz := plant.dropped_until(channel, 'raw');
    found tstzmultirange := '{}';
    r     tstzrange;
BEGIN
    IF until IS NULL OR until <= lower(ranges) OR ranges = '{}' THEN
        RETURN found;
    END IF;
    FOR r IN
        SELECT u FROM unnest(plant.widen_ranges(ranges * tstzmultirange(tstzrange(NULL, until)), INTERVAL '1 minute')
                             - plant.archived_ranges(channel)) AS u
    LOOP
        found := found + (
            SELECT coalesce(range_agg(tstzrange(m.bucket, m.bucket + INTERVAL '1 minute')), '{}')
            FROM plant.minutes_between(ARRAY[channel], lower(r), upper(r)) AS m
            LEFT JOIN (
                SELECT plant.minute_of(b.time) AS minute, count(*) AS n, min(b.value) AS min, max(b.value) AS max
                FROM plant.samples_between(ARRAY[channel], lower(r), upper(r)) AS b
                GROUP BY 1
            ) AS s ON s.minute = m.bucket
            WHERE s.n IS NULL OR s.n < m.n OR s.min > m.min OR s.max < m.max);
    END LOOP;
    RETURN found;
END
$$;
