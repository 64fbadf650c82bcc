-- The time in each state by minute, computed from the samples of discrete channels.
CREATE OR REPLACE FUNCTION plant.state_minutes_of(channels int[], "from" timestamptz, "to" timestamptz)
RETURNS SETOF plant.rollup_states_1m
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog
SET plan_cache_mode = force_custom_plan
SET jit = off
SET enable_seqscan = off
SET enable_bitmapscan = off
SET max_parallel_workers_per_gather = 0
AS $$
DECLARE
    since CONSTANT timestamptz := "from" - plant.hold_limit();
    hold  CONSTANT float8 := date_part('epoch', plant.hold_limit()) * 1e6;
BEGIN
    RETURN QUERY
    WITH gaps AS MATERIALIZED (
        SELECT g.channel_id, g.begins FROM plant.gap_begins(channels, since, "to") AS g
    ),
    course AS MATERIALIZED (
        SELECT c.id, u.minute, u.at, u.state, count(u.sample) OVER (PARTITION BY c.id, u.minute) AS samples,
               lag(u.state) OVER path AS before, lag(u.at) OVER path AS before_at,
               lead(u.minute) OVER path IS DISTINCT FROM u.minute AS is_last
        FROM unnest(channels) AS c (id)
        LEFT JOIN gaps AS g ON g.channel_id = c.id
        CROSS JOIN LATERAL (
            SELECT s.at, CASE WHEN abs(s.good) <= 1e280 THEN s.good + 0 END AS state, -- + 0: no -0
                   s.sample, floor(s.at / 6e7) AS minute
            FROM plant.value_points(c.id, g.begins, since, "from", "to") AS s
        ) AS u
        WINDOW path AS (PARTITION BY c.id ORDER BY u.minute, u.at)
    ),
    part AS (
        -- before a sample
        SELECT c.id, c.minute, c.before AS state, 0 AS entered,
               greatest(0, least(floor(c.at), c.before_at + hold) - greatest(c.before_at, 6e7 * c.minute)) AS held
        FROM course AS c
        WHERE c.at >= 0 AND c.samples > 0 AND c.before IS NOT NULL
        UNION ALL
        -- at it, and after the last one of a minute
        SELECT c.id, c.minute, c.state,
               CASE WHEN c.before = c.state AND c.before_at + hold >= c.at THEN 0 ELSE 1 END,
               CASE WHEN c.is_last THEN 6e7 * (c.minute + 1) - c.at ELSE 0 END
        FROM course AS c
        WHERE c.at >= 0 AND c.samples > 0 AND c.state IS NOT NULL
    )
    SELECT p.id, sum(p.entered)::int, "from" + INTERVAL '1 minute' * p.minute, p.state, sum(p.held)::bigint
    FROM part AS p
    GROUP BY p.id, p.minute, p.state
    HAVING sum(p.entered) > 0 OR sum(p.held) > 0;
END
$$;
