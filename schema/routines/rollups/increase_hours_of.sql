-- The increase of counters within an hour in which a reading is lower than that before it, computed from its minutes.
CREATE OR REPLACE FUNCTION plant.increase_hours_of(channels int[], hour timestamptz)
RETURNS SETOF plant.rollup_increases_1h
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog
SET plan_cache_mode = force_custom_plan
SET jit = off
SET enable_seqscan = off
SET enable_bitmapscan = off
SET max_parallel_workers_per_gather = 0
AS $$
BEGIN
    RETURN QUERY
    WITH minute AS (
        SELECT m.channel_id, m.bucket, m.first, m.last, i.increase, (c.attributes ->> 'wraps_at')::float8 AS wraps_at,
               lag(m.last) OVER (PARTITION BY m.channel_id ORDER BY m.bucket) AS before
        FROM plant.minutes_between(channels, hour, plant.add_interval(hour, INTERVAL '1 hour')) AS m
        JOIN plant.channel AS c ON c.id = m.channel_id
        LEFT JOIN plant.rollup_increases_1m AS i
            ON i.channel_id = m.channel_id AND i.bucket = m.bucket
               AND i.bucket >= hour AND i.bucket < plant.add_interval(hour, INTERVAL '1 hour')
        WHERE m.n_good > 0 AND m.min >= -1e280 AND m.max <= 1e280
    )
    SELECT m.channel_id, hour,
           sum(coalesce(m.increase, plant.counter_increase(m.first, m.last, m.wraps_at))
               + coalesce(plant.counter_increase(m.before, m.first, m.wraps_at), 0) ORDER BY m.bucket) + 0 -- no -0
    FROM minute AS m
    GROUP BY m.channel_id
    HAVING bool_or(m.increase IS NOT NULL OR m.last < m.first OR m.first < m.before);
END
$$;
