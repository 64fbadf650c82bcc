-- One hour of the channels, computed from its minutes.
CREATE OR REPLACE FUNCTION plant.hours_of(channels int[], hour timestamptz)
RETURNS SETOF plant.rollup_1h
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
    )
    SELECT c.id, h.n::int, hour, h.min, h.max, plant.round_sum(h.sum, h.n, e.most),
           plant.round_sum(h.area + coalesce(plant.rollup_weight(e.carries) * (e.behind / 1e6), 0), h.entries + 1,
                           e.most * 3600),
           h.firsts[1], h.lasts[cardinality(h.lasts)], (h.known + coalesce(e.behind, 0))::bigint, h.first_time,
           h.last_time, h.n_good::int, coalesce(e.carried_until >= 3.6e9, false)
    FROM unnest(channels) AS c (id)
    LEFT JOIN gaps AS g ON g.channel_id = c.id
    CROSS JOIN LATERAL (
        SELECT count(*) AS entries, sum((v.line).n) AS n, sum((v.line).n_good) AS n_good, min((v.line).min) AS min,
               max((v.line).max) AS max, sum((v.line).sum ORDER BY v.until) AS sum,
               sum(coalesce(plant.rollup_weight(v.before) * (v.held / 1e6), 0) + coalesce((v.line).area, 0)
                   ORDER BY v.until) AS area,
               sum(coalesce(v.held, 0) + coalesce((v.line).known, 0)) AS known,
               array_agg((v.line).first ORDER BY v.until) FILTER (WHERE (v.line).n_good > 0) AS firsts,
               array_agg((v.line).last ORDER BY v.until) FILTER (WHERE (v.line).n_good > 0) AS lasts,
               min((v.line).first_time) AS first_time, max((v.line).last_time) AS last_time, max(v.until) AS until,
               array_agg(v.carries ORDER BY v.until) AS carries,
               array_agg(v.carried_until ORDER BY v.until) AS carried_until
        FROM plant.minute_points(c.id, g.begins, hour) AS v
    ) AS h
    CROSS JOIN LATERAL (
        SELECT l.carries, l.carried_until,
               CASE WHEN l.carries IS NOT NULL THEN greatest(0, least(3.6e9, l.carried_until) - h.until) END AS behind,
               CASE WHEN h.n_good > 0 THEN plant.rollup_weight(least(greatest(-h.min, h.max), 1e280)) ELSE 0 END AS most
        FROM (SELECT h.carries[h.entries] AS carries,
                     CASE WHEN h.carries[h.entries] IS NOT NULL THEN h.carried_until[h.entries] END
                         AS carried_until) AS l
    ) AS e
    WHERE h.n > 0;
END
$$;
