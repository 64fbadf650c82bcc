-- Samples of channels by day and hour (24 each) between two times, in a relation (NULL: in all storage forms), for days
-- that have some. A row that awaits packing counts even if the same sample is packed already.
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
    SELECT c.day, c.channel_id,
           ARRAY(SELECT coalesce(h.n, 0)::int
                 FROM generate_series(0, 23) AS g (hour)
                 LEFT JOIN unnest(c.hours, c.counts) AS h (hour, n) ON h.hour = g.hour
                 ORDER BY g.hour)
    FROM (
        SELECT t.hour::date AS day, t.channel_id, array_agg(extract(hour FROM t.hour)) AS hours,
               array_agg(t.n) AS counts
        FROM (
            SELECT b.hour, b.channel_id, sum(b.n) AS n
            FROM (
                SELECT p.hour, p.channel_id, p.n::bigint AS n
                FROM plant.samples_packed AS p
                WHERE p.hour >= from_time AND p.hour < to_time AND p.channel_id = ANY (channels)
                  AND coalesce(relation = 'plant.samples_packed'::regclass, true)
                UNION ALL
                -- Nothing is as quick to compute for each row as time_bucket.
                SELECT public.time_bucket(INTERVAL '1 hour', r.time) AS hour, r.channel_id, count(*)
                FROM plant.samples_raw AS r
                WHERE r.time >= from_time AND r.time < to_time AND r.channel_id = ANY (channels)
                  AND coalesce(relation = 'plant.samples_raw'::regclass, true)
                GROUP BY 1, 2
            ) AS b
            GROUP BY b.hour, b.channel_id
        ) AS t
        GROUP BY t.hour::date, t.channel_id
    ) AS c;
END
$$;
