-- Samples of channels by day and hour (24 each) between two times, in a relation (NULL: in all storage forms), for days that
-- have some. A row that awaits packing counts even if the same sample is packed already.
CREATE OR REPLACE FUNCTION plant.stored_hours(channels int[], from_time timestamptz, to_time timestamptz,
                                              relation regclass DEFAULT NULL)
RETURNS TABLE (day date, channel_id int, n int[])
LANGUAGE plpgsql STABLE ROWS 20000
SET search_path = pg_catalog
SET timezone = 'UTC'
SET plan_cache_mode = force_custom_plan -- chunks are known to the planner by their times
SET jit = off
AS $$
BEGIN
    RETURN QUERY
    SELECT c.day, c.channel_id, array_agg(coalesce(c.n, 0)::int ORDER BY c.hour)
    FROM (
        SELECT p.day, p.channel_id, h.hour, sum(p.n) FILTER (WHERE p.hour = h.hour) AS n
        FROM (
            SELECT p.hour::date AS day, p.channel_id, extract(hour FROM p.hour)::int AS hour, p.n::bigint AS n
            FROM plant.samples_packed AS p
            WHERE p.hour >= from_time AND p.hour < to_time AND p.channel_id = ANY (channels)
              AND coalesce(relation = 'plant.samples_packed'::regclass, true)
            UNION ALL
            SELECT r.time::date, r.channel_id, extract(hour FROM r.time)::int, count(*)
            FROM plant.samples_raw AS r
            WHERE r.time >= from_time AND r.time < to_time AND r.channel_id = ANY (channels)
              AND coalesce(relation = 'plant.samples_raw'::regclass, true)
            GROUP BY 1, 2, 3
        ) AS p
        CROSS JOIN generate_series(0, 23) AS h (hour)
        GROUP BY p.day, p.channel_id, h.hour
    ) AS c
    GROUP BY c.day, c.channel_id;
END
$$;
