-- Minutes of the channels, computed from their samples. The bounds are whole minutes.
CREATE OR REPLACE FUNCTION plant.minutes_of(channels int[], "from" timestamptz, "to" timestamptz)
RETURNS SETOF plant.rollup_1m
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog
SET plan_cache_mode = force_custom_plan -- chunks are known to the planner by their times
SET jit = off
SET enable_seqscan = off -- one index scan per channel: a day of all channels is too large to scan
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
    )
    SELECT c.id, m.n::int, "from" + INTERVAL '1 minute' * m.minute, m.min, m.max,
           coalesce(plant.round_sum(m.sum, m.n, w.most), 0), plant.round_sum(m.area + w.behind, m.n + 1, w.most * 60),
           m.goods[1], m.goods[m.n_good], (m.known + h.left_over)::bigint,
           "from" + INTERVAL '1 microsecond' * m.first_at, "from" + INTERVAL '1 microsecond' * m.last_at,
           m.n_good::int, h.holds
    FROM unnest(channels) AS c (id)
    LEFT JOIN gaps AS g ON g.channel_id = c.id
    CROSS JOIN LATERAL (
        SELECT v.minute, count(v.sample) AS n, count(v.good) AS n_good, min(v.good) AS min, max(v.good) AS max,
               sum(v.weight ORDER BY v.at) AS sum, coalesce(sum(v.before * (v.held / 1e6) ORDER BY v.at), 0) AS area,
               coalesce(sum(v.held), 0) AS known,
               array_agg(v.good ORDER BY v.at) FILTER (WHERE v.good IS NOT NULL) AS goods,
               min(v.good_at) AS first_at, max(v.good_at) AS last_at, max(v.at) AS end_at
        FROM (
            SELECT u.minute, u.at, u.good, u.sample, u.weight, lag(u.weight) OVER course AS before,
                   CASE WHEN u.good IS NOT NULL THEN u.at END AS good_at,
                   -- µs of this minute before this sample during which the previous value held
                   CASE WHEN lag(u.weight) OVER course IS NOT NULL
                        THEN greatest(0, least(floor(u.at), lag(u.at) OVER course + hold)
                                         - greatest(lag(u.at) OVER course, 6e7 * u.minute)) END AS held
            FROM (
                SELECT s.at, s.good, s.sample, floor(s.at / 6e7) AS minute, plant.rollup_weight(s.good) AS weight
                FROM plant.value_points(c.id, g.begins, since, "from", "to") AS s
            ) AS u
            WINDOW course AS (ORDER BY u.minute, u.at)
        ) AS v
        WHERE v.at >= 0
        GROUP BY v.minute
    ) AS m
    CROSS JOIN LATERAL (
        -- µs after the last sample during which it holds
        SELECT l.holds, CASE WHEN l.holds THEN 6e7 * (m.minute + 1) - m.last_at ELSE 0 END AS left_over
        FROM (SELECT coalesce(m.last_at = m.end_at AND plant.rollup_weight(m.goods[m.n_good]) IS NOT NULL, false)
                         AS holds) AS l
    ) AS h
    CROSS JOIN LATERAL (
        SELECT CASE WHEN h.left_over > 0 THEN plant.rollup_weight(m.goods[m.n_good]) * (h.left_over / 1e6)
                    ELSE 0 END AS behind,
               CASE WHEN m.n_good > 0 THEN plant.rollup_weight(least(greatest(-m.min, m.max), 1e280)) ELSE 0 END AS most
    ) AS w
    WHERE m.n > 0;
END
$$;
