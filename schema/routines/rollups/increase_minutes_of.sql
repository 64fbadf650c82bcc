-- The increase of counters within minutes in which a reading is lower than that before it, computed from their samples.
CREATE OR REPLACE FUNCTION plant.increase_minutes_of(channels int[], "from" timestamptz, "to" timestamptz)
RETURNS SETOF plant.rollup_increases_1m
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
    WITH reading AS (
        SELECT c.id, s.time, plant.minute_of(s.time) AS minute, plant.rollup_weight(s.value) AS value,
               (c.attributes ->> 'wraps_at')::float8 AS wraps_at
        FROM plant.channel AS c
        CROSS JOIN LATERAL plant.samples_between(ARRAY[c.id], "from", "to") AS s
        WHERE c.id = ANY (channels) AND s.status >= 0 AND plant.rollup_weight(s.value) IS NOT NULL
    ),
    step AS (
        SELECT r.*, lag(r.value) OVER (PARTITION BY r.id, r.minute ORDER BY r.time) AS before FROM reading AS r
    )
    SELECT s.id, s.minute, sum(plant.counter_increase(s.before, s.value, s.wraps_at) ORDER BY s.time) + 0 -- no -0
    FROM step AS s
    GROUP BY s.id, s.minute
    HAVING bool_or(s.value < s.before);
END
$$;
