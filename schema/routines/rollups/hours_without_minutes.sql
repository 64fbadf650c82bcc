-- Hours that touch some ranges and of which minutes are not stored any more, because retention dropped them. Nothing is
-- read of times that retention has not reached.
CREATE OR REPLACE FUNCTION plant.hours_without_minutes(channel int, ranges tstzmultirange) RETURNS tstzmultirange
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog
SET plan_cache_mode = force_custom_plan -- chunks are known to the planner by their times
SET jit = off
SET max_parallel_workers_per_gather = 0
AS $$
DECLARE
    until CONSTANT timestamptz := plant.dropped_until(channel, '1m');
    found tstzmultirange := '{}';
    r     tstzrange;
BEGIN
    IF until IS NULL OR until <= lower(ranges) OR ranges = '{}' THEN
        RETURN found;
    END IF;
    FOR r IN
        SELECT u
        FROM unnest(plant.widen_ranges(ranges * tstzmultirange(tstzrange(NULL, until)), INTERVAL '1 hour')) AS u
    LOOP
        found := found + (
            SELECT coalesce(range_agg(tstzrange(h.bucket, h.bucket + INTERVAL '1 hour')), '{}')
            FROM plant.rollup_1h AS h
            LEFT JOIN (
                SELECT plant.hour_of(m.bucket) AS hour, sum(m.n) AS n
                FROM plant.minutes_between(ARRAY[channel], lower(r), upper(r)) AS m
                GROUP BY 1
            ) AS s ON s.hour = h.bucket
            WHERE h.channel_id = channel AND h.bucket >= lower(r) AND h.bucket < upper(r) AND coalesce(s.n, 0) < h.n);
    END LOOP;
    RETURN found;
END
$$;
