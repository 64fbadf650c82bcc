-- The time in each state of an hour, computed from its minutes.
CREATE OR REPLACE FUNCTION plant.state_hours_of(channels int[], hour timestamptz)
RETURNS SETOF plant.rollup_states_1h
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
    WITH gaps AS MATERIALIZED (
        SELECT g.channel_id, g.begins
        FROM plant.gap_begins_between_minutes(channels, plant.add_interval(hour, -plant.hold_limit()),
                                              plant.add_interval(hour, INTERVAL '1 hour')) AS g
    ),
    course AS MATERIALIZED (
        SELECT c.id, v.until, v.before + 0 AS before, v.held, v.carries + 0 AS carries, v.carried_until,
               lead(v.until) OVER (PARTITION BY c.id ORDER BY v.until) IS NULL AS is_last
        FROM unnest(channels) AS c (id)
        LEFT JOIN gaps AS g ON g.channel_id = c.id
        CROSS JOIN LATERAL plant.minute_points(c.id, g.begins, hour) AS v
    ),
    part AS (
        SELECT r.channel_id AS id, r.state, r.n, r.known::float8 AS held
        FROM plant.rollup_states_1m AS r
        WHERE r.channel_id = ANY (channels) AND r.bucket >= hour
          AND r.bucket < plant.add_interval(hour, INTERVAL '1 hour')
        UNION ALL
        SELECT c.id, c.before, 0, c.held FROM course AS c WHERE c.held > 0
        UNION ALL
        SELECT c.id, c.carries, 0, least(3.6e9, c.carried_until) - c.until
        FROM course AS c
        WHERE c.is_last AND c.carries IS NOT NULL AND least(3.6e9, c.carried_until) > c.until
    )
    SELECT p.id, sum(p.n)::int, hour, p.state, sum(p.held)::bigint
    FROM part AS p
    WHERE p.id IN (SELECT c.id FROM course AS c WHERE c.until > 0.5)
      AND EXISTS (SELECT FROM plant.minutes_between(ARRAY[p.id], hour, plant.add_interval(hour, INTERVAL '1 hour')))
    GROUP BY p.id, p.state
    HAVING sum(p.n) > 0 OR sum(p.held) > 0;
END
$$;
