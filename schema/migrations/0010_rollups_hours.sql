-- Minutes → hours.

-- The next minute of a channel that has a row, no later than values are carried. A channel's day is packed or it is not:
-- only packed days on this side of the row are looked into.
CREATE FUNCTION plant.minute_after(channel int, at timestamptz) RETURNS TABLE (bucket timestamptz)
LANGUAGE sql STABLE PARALLEL SAFE ROWS 1
BEGIN ATOMIC
    SELECT coalesce(p.bucket, r.bucket)
    FROM (SELECT) AS one
    LEFT JOIN LATERAL (
        SELECT r.bucket
        FROM plant.rollup_1m AS r
        WHERE r.channel_id = channel AND r.bucket >= at AND r.bucket <= at + plant.hold_limit()
        ORDER BY r.bucket LIMIT 1
    ) AS r ON true
    LEFT JOIN LATERAL (
        SELECT u.bucket
        FROM plant.rollup_1m_packed AS p
        CROSS JOIN LATERAL plant.unpack_minutes(p, at, at + plant.hold_limit() + INTERVAL '1 minute') AS u
        WHERE p.channel_id = channel AND p.day > at - INTERVAL '24 hours'
          AND p.day <= coalesce(r.bucket, at + plant.hold_limit())
        ORDER BY u.bucket LIMIT 1
    ) AS p ON true
    WHERE coalesce(p.bucket, r.bucket) IS NOT NULL;
END;

-- The one before.
CREATE FUNCTION plant.minute_before(channel int, at timestamptz) RETURNS SETOF plant.rollup_1m
LANGUAGE sql STABLE PARALLEL SAFE ROWS 1
BEGIN ATOMIC
    SELECT g.*
    FROM (SELECT) AS one
    LEFT JOIN LATERAL (
        SELECT m AS line, m.bucket
        FROM plant.rollup_1m AS m
        WHERE m.channel_id = channel AND m.bucket >= at - plant.hold_limit() - INTERVAL '1 minute' AND m.bucket < at
        ORDER BY m.bucket DESC LIMIT 1
    ) AS r ON true
    CROSS JOIN LATERAL (
        SELECT (r.line).* WHERE r.bucket IS NOT NULL
        UNION ALL
        SELECT u.*
        FROM plant.rollup_1m_packed AS p
        CROSS JOIN LATERAL plant.unpack_minutes(p, at - plant.hold_limit() - INTERVAL '1 minute', at) AS u
        WHERE p.channel_id = channel AND p.day < at
          AND p.day > coalesce(r.bucket, at - plant.hold_limit() - INTERVAL '24 hours 1 minute')
    ) AS g
    ORDER BY g.bucket DESC LIMIT 1;
END;

-- When gaps begin in minutes that have no row; those that have one know of them.
CREATE FUNCTION plant.gap_begins_between_minutes(channels int[], "from" timestamptz, "to" timestamptz)
RETURNS TABLE (channel_id int, begins timestamptz[])
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT g.channel_id, array_agg(b.b)
    FROM plant.gap_begins(channels, "from", "to") AS g
    CROSS JOIN unnest(g.begins) AS b (b)
    CROSS JOIN LATERAL (SELECT date_bin(INTERVAL '1 minute', b.b, TIMESTAMPTZ '2000-01-01 00:00:00+00') AS minute) AS m
    WHERE NOT EXISTS (SELECT FROM plant.minutes_between(ARRAY[g.channel_id], m.minute, m.minute + INTERVAL '1 minute'))
    GROUP BY g.channel_id;
END;

-- The minutes of an hour, in their order; held: µs of the hour before one through which the last value before it (of
-- before) held. A gap's begin has no row. Times are µs since the hour began.
CREATE FUNCTION plant.minute_course(channel int, gaps timestamptz[], hour timestamptz)
RETURNS TABLE (until float8, line plant.rollup_1m, before float8, held float8, carries float8, carried_until float8)
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT v.until, v.line, v.before, v.held, v.carries, v.carried_until
    FROM (
        SELECT u.until, u.line, u.carries, u.carried_until, lag(u.carries) OVER course AS before,
               CASE WHEN lag(u.carries) OVER course IS NOT NULL
                    THEN greatest(0, least(u.begins, lag(u.carried_until) OVER course)
                                     - greatest(0, lag(u.until) OVER course)) END AS held
        FROM (
            SELECT b.begins, b.begins + 6e7 AS until, m AS line, CASE WHEN m.holds THEN m.last END AS carries,
                   round(date_part('epoch', m.last_time + plant.hold_limit() - hour) * 1e6) AS carried_until
            FROM plant.minutes_between(ARRAY[channel], hour, hour + INTERVAL '1 hour') AS m
            CROSS JOIN LATERAL (SELECT round(date_part('epoch', m.bucket - hour) * 1e6) AS begins) AS b
            UNION ALL
            SELECT b.begins, b.begins + 6e7, NULL, CASE WHEN m.holds THEN m.last END,
                   round(date_part('epoch', m.last_time + plant.hold_limit() - hour) * 1e6)
            FROM plant.minute_before(channel, hour) AS m
            CROSS JOIN LATERAL (SELECT round(date_part('epoch', m.bucket - hour) * 1e6) AS begins) AS b
            UNION ALL
            SELECT b.begins, b.begins + 0.5, NULL, NULL, NULL
            FROM unnest(gaps) AS g (g)
            CROSS JOIN LATERAL (SELECT round(date_part('epoch', g.g - hour) * 1e6) AS begins) AS b
        ) AS u
        WINDOW course AS (ORDER BY u.until)
    ) AS v
    WHERE v.until > 0.5;
END;

-- The hour of the channels, from its minutes.
CREATE FUNCTION plant.hours_of(channels int[], hour timestamptz)
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
        FROM plant.gap_begins_between_minutes(channels, hour - plant.hold_limit(), hour + INTERVAL '1 hour') AS g
    )
    SELECT c.id, h.n::int, hour, h.min, h.max, plant.tidy(h.sum, h.n, e.most),
           plant.tidy(h.area + coalesce(plant.rollup_weight(e.carries) * (e.behind / 1e6), 0), h.entries + 1, e.most * 3600),
           h.firsts[1], h.lasts[cardinality(h.lasts)], (h.known + coalesce(e.behind, 0))::bigint, h.first_time, h.last_time,
           h.n_good::int, coalesce(e.carried_until >= 3.6e9, false)
    FROM unnest(channels) AS c (id)
    LEFT JOIN gaps AS g ON g.channel_id = c.id
    CROSS JOIN LATERAL (
        SELECT count(*) AS entries, sum((v.line).n) AS n, sum((v.line).n_good) AS n_good, min((v.line).min) AS min, max((v.line).max) AS max,
               sum((v.line).sum ORDER BY v.until) AS sum,
               sum(coalesce(plant.rollup_weight(v.before) * (v.held / 1e6), 0) + coalesce((v.line).area, 0)
                   ORDER BY v.until) AS area,
               sum(coalesce(v.held, 0) + coalesce((v.line).known, 0)) AS known,
               array_agg((v.line).first ORDER BY v.until) FILTER (WHERE (v.line).n_good > 0) AS firsts,
               array_agg((v.line).last ORDER BY v.until) FILTER (WHERE (v.line).n_good > 0) AS lasts,
               min((v.line).first_time) AS first_time, max((v.line).last_time) AS last_time, max(v.until) AS until,
               array_agg(v.carries ORDER BY v.until) AS carries, array_agg(v.carried_until ORDER BY v.until) AS carried_until
        FROM plant.minute_course(c.id, g.begins, hour) AS v
    ) AS h
    CROSS JOIN LATERAL (
        SELECT l.carries, l.carried_until,
               CASE WHEN l.carries IS NOT NULL THEN greatest(0, least(3.6e9, l.carried_until) - h.until) END AS behind,
               CASE WHEN h.n_good > 0 THEN plant.rollup_weight(least(greatest(-h.min, h.max), 1e280)) ELSE 0 END AS most
        FROM (SELECT h.carries[h.entries] AS carries,
                     CASE WHEN h.carries[h.entries] IS NOT NULL THEN h.carried_until[h.entries] END AS carried_until) AS l
    ) AS e
    WHERE h.n > 0;
END
$$;

-- The time in each state in the hour, from its minutes.
CREATE FUNCTION plant.state_hours_of(channels int[], hour timestamptz)
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
        FROM plant.gap_begins_between_minutes(channels, hour - plant.hold_limit(), hour + INTERVAL '1 hour') AS g
    ),
    course AS MATERIALIZED (
        SELECT c.id, v.until, v.before + 0 AS before, v.held, v.carries + 0 AS carries, v.carried_until,
               lead(v.until) OVER (PARTITION BY c.id ORDER BY v.until) IS NULL AS is_last
        FROM unnest(channels) AS c (id)
        LEFT JOIN gaps AS g ON g.channel_id = c.id
        CROSS JOIN LATERAL plant.minute_course(c.id, g.begins, hour) AS v
    ),
    part AS (
        SELECT r.channel_id AS id, r.state, r.n, r.known::float8 AS held
        FROM plant.rollup_states_1m AS r
        WHERE r.channel_id = ANY (channels) AND r.bucket >= hour AND r.bucket < hour + INTERVAL '1 hour'
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
      AND EXISTS (SELECT FROM plant.minutes_between(ARRAY[p.id], hour, hour + INTERVAL '1 hour'))
    GROUP BY p.id, p.state
    HAVING sum(p.n) > 0 OR sum(p.held) > 0;
END
$$;
