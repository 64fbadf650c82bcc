-- Rollups are planned over the chunks that they read. What a function's body adds to a time by + is no constant to the
-- planner (a day's length is the time zone's), so it opened all later or earlier chunks of the rollups, or all: with a
-- sample a day over ten years each portion was planned over thousands of them.

-- A time so much later, or earlier; by is hours or less, not days or months, which the time zone decides about.
CREATE FUNCTION plant.later(at timestamptz, by interval) RETURNS timestamptz
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN at + by;

-- The last sample before a time, if it is not older than since. Packed hours are looked at only where the rows do not
-- reach beyond them.
CREATE OR REPLACE FUNCTION plant.last_before(channel int, since timestamptz, before timestamptz)
RETURNS TABLE ("time" timestamptz, value float8, status int)
LANGUAGE sql STABLE PARALLEL SAFE ROWS 1
BEGIN ATOMIC
    SELECT g.time, g.value, g.status
    FROM (SELECT) AS one
    LEFT JOIN LATERAL (
        SELECT r.time, r.value, r.status
        FROM plant.samples_raw AS r
        WHERE r.channel_id = channel AND r.time >= since AND r.time < before
          AND (r.time >= (SELECT u.until FROM plant.packed_until AS u) OR NOT plant.is_packed(r.channel_id, r.time))
        ORDER BY r.time DESC LIMIT 1
    ) AS r ON true
    CROSS JOIN LATERAL (
        SELECT r.time, r.value, r.status WHERE r.time IS NOT NULL
        UNION ALL
        SELECT u.time, u.value, u.status
        FROM (
            -- Of the hour that the time cuts there may be nothing before it, of the one before there is.
            SELECT p
            FROM plant.samples_packed AS p
            WHERE p.channel_id = channel AND p.hour >= plant.hour_of(since) AND p.hour < before
              AND (r.time IS NULL OR r.time < (SELECT u.until FROM plant.packed_until AS u))
            ORDER BY p.hour DESC LIMIT 2
        ) AS two
        CROSS JOIN LATERAL plant.unpack(two.p, since, before) AS u
        WHERE u.time >= since AND u.time < before
    ) AS g
    ORDER BY g.time DESC LIMIT 1;
END;

-- Minutes with from <= bucket < to, as they are stored; reads only the channels' days within the bounds.
CREATE OR REPLACE FUNCTION plant.minutes_between(channels int[], "from" timestamptz, "to" timestamptz)
RETURNS SETOF plant.rollup_1m
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT r.* FROM plant.rollup_1m AS r
    WHERE r.channel_id = ANY (channels) AND r.bucket >= "from" AND r.bucket < "to"
    UNION ALL
    SELECT u.*
    FROM plant.rollup_1m_packed AS p
    CROSS JOIN LATERAL plant.unpack_minutes(p, "from", "to") AS u
    WHERE p.channel_id = ANY (channels) AND p.day >= plant.day_of("from") AND p.day < "to";
END;

-- The next minute of a channel that has a row, no later than values are carried. A channel's day is packed or it is not:
-- only packed days on this side of the row are looked into.
CREATE OR REPLACE FUNCTION plant.minute_after(channel int, at timestamptz) RETURNS TABLE (bucket timestamptz)
LANGUAGE sql STABLE PARALLEL SAFE ROWS 1
BEGIN ATOMIC
    SELECT coalesce(p.bucket, r.bucket)
    FROM (SELECT) AS one
    LEFT JOIN LATERAL (
        SELECT r.bucket
        FROM plant.rollup_1m AS r
        WHERE r.channel_id = channel AND r.bucket >= at AND r.bucket <= plant.later(at, plant.hold_limit())
        ORDER BY r.bucket LIMIT 1
    ) AS r ON true
    LEFT JOIN LATERAL (
        SELECT u.bucket
        FROM plant.rollup_1m_packed AS p
        CROSS JOIN LATERAL plant.unpack_minutes(p, at, plant.later(at, plant.hold_limit() + INTERVAL '1 minute')) AS u
        WHERE p.channel_id = channel AND p.day >= plant.day_of(at)
          AND p.day <= plant.later(at, plant.hold_limit()) AND (r.bucket IS NULL OR p.day <= r.bucket)
        ORDER BY u.bucket LIMIT 1
    ) AS p ON true
    WHERE coalesce(p.bucket, r.bucket) IS NOT NULL;
END;

-- The one before.
CREATE OR REPLACE FUNCTION plant.minute_before(channel int, at timestamptz) RETURNS SETOF plant.rollup_1m
LANGUAGE sql STABLE PARALLEL SAFE ROWS 1
BEGIN ATOMIC
    SELECT g.*
    FROM (SELECT) AS one
    LEFT JOIN LATERAL (
        SELECT m AS line, m.bucket
        FROM plant.rollup_1m AS m
        WHERE m.channel_id = channel AND m.bucket >= plant.later(at, -plant.hold_limit() - INTERVAL '1 minute') AND m.bucket < at
        ORDER BY m.bucket DESC LIMIT 1
    ) AS r ON true
    CROSS JOIN LATERAL (
        SELECT (r.line).* WHERE r.bucket IS NOT NULL
        UNION ALL
        SELECT u.*
        FROM plant.rollup_1m_packed AS p
        CROSS JOIN LATERAL plant.unpack_minutes(p, plant.later(at, -plant.hold_limit() - INTERVAL '1 minute'), at) AS u
        WHERE p.channel_id = channel AND p.day < at
          AND p.day >= plant.day_of(plant.later(at, -plant.hold_limit() - INTERVAL '1 minute'))
          AND (r.bucket IS NULL OR p.day > r.bucket)
    ) AS g
    ORDER BY g.bucket DESC LIMIT 1;
END;

-- When gaps begin in minutes that have no row; those that have one know of them. OFFSET 0: a look-up for each, planned over
-- the chunks within the bounds; a join would be planned over all.
CREATE OR REPLACE FUNCTION plant.gap_begins_between_minutes(channels int[], "from" timestamptz, "to" timestamptz)
RETURNS TABLE (channel_id int, begins timestamptz[])
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT g.channel_id, array_agg(b.b)
    FROM plant.gap_begins(channels, "from", "to") AS g
    CROSS JOIN unnest(g.begins) AS b (b)
    CROSS JOIN LATERAL (SELECT plant.minute_of(b.b) AS minute) AS m
    WHERE NOT EXISTS (SELECT FROM plant.rollup_1m AS r
                      WHERE r.channel_id = g.channel_id AND r.bucket = m.minute
                        AND r.bucket >= plant.minute_of("from") AND r.bucket < "to" OFFSET 0)
      AND NOT EXISTS (SELECT FROM plant.rollup_1m_packed AS p
                      CROSS JOIN LATERAL plant.unpack_minutes(p, m.minute, m.minute + INTERVAL '1 minute')
                      WHERE p.channel_id = g.channel_id AND p.day = plant.day_of(m.minute)
                        AND p.day >= plant.day_of("from") AND p.day < "to" OFFSET 0)
    GROUP BY g.channel_id;
END;

-- The minutes of an hour, in their order; held: µs of the hour before one through which the last value before it (of
-- before) held. A gap's begin has no row. Times are µs since the hour began.
CREATE OR REPLACE FUNCTION plant.minute_course(channel int, gaps timestamptz[], hour timestamptz)
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
            FROM plant.minutes_between(ARRAY[channel], hour, plant.later(hour, INTERVAL '1 hour')) AS m
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
        FROM plant.gap_begins_between_minutes(channels, plant.later(hour, -plant.hold_limit()),
                                              plant.later(hour, INTERVAL '1 hour')) AS g
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
        FROM plant.gap_begins_between_minutes(channels, plant.later(hour, -plant.hold_limit()),
                                              plant.later(hour, INTERVAL '1 hour')) AS g
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
        WHERE r.channel_id = ANY (channels) AND r.bucket >= hour AND r.bucket < plant.later(hour, INTERVAL '1 hour')
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
      AND EXISTS (SELECT FROM plant.minutes_between(ARRAY[p.id], hour, plant.later(hour, INTERVAL '1 hour')))
    GROUP BY p.id, p.state
    HAVING sum(p.n) > 0 OR sum(p.held) > 0;
END
$$;

-- Make the minutes of some channels from one time to another anew, within a day, in the caller's snapshot. Dirty rows go,
-- or what they have within these bounds; those of any channel where everyone is given. A DELETE is planned over all
-- chunks, whatever its bounds: there is one only where something goes.
CREATE OR REPLACE FUNCTION plant.refresh_minutes(ids int[], everyone int[], "from" timestamptz, "to" timestamptz) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog
SET plan_cache_mode = force_custom_plan
SET jit = off
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
    others   CONSTANT int[] := ARRAY(SELECT e.id FROM unnest(everyone) AS e (id) EXCEPT SELECT i.id FROM unnest(ids) AS i (id));
    whole    CONSTANT boolean := everyone IS NOT NULL AND others = '{}';
    discrete int[] := ARRAY(SELECT c.id FROM plant.channel AS c WHERE c.kind = 'discrete' AND c.id = ANY (ids));
    of_day   CONSTANT timestamptz := plant.day_of("from");
    forced   int[];
    gone_ids     int[];
    gone_buckets timestamptz[];
BEGIN
    WITH taken AS (
        DELETE FROM plant.rollup_dirty AS d
        WHERE d.from_time < "to" AND d.to_time > "from" AND NOT d.hours
          AND (d.channels && ids OR d.channels IS NULL AND everyone IS NOT NULL)
        RETURNING d.from_time, d.to_time, d.channels, d.onward
    ),
    rest AS (
        INSERT INTO plant.rollup_dirty (from_time, to_time, channels, onward)
        SELECT t.from_time, "from", t.channels, t.onward FROM taken AS t WHERE t.from_time < "from"
        UNION ALL
        SELECT "to", t.to_time, t.channels, t.onward FROM taken AS t WHERE t.to_time > "to"
        UNION ALL
        SELECT greatest(t.from_time, "from"), least(t.to_time, "to"), r.others, t.onward
        FROM taken AS t
        CROSS JOIN LATERAL (
            SELECT CASE WHEN t.channels IS NULL THEN others
                        WHEN t.channels <@ ids THEN '{}'
                        ELSE ARRAY(SELECT c.id FROM unnest(t.channels) AS c (id)
                                   EXCEPT SELECT i.id FROM unnest(ids) AS i (id)) END AS others
        ) AS r
        WHERE r.others <> '{}'
    ),
    onward AS (
        SELECT c.id, plant.hour_of(greatest(t.from_time, "from")) AS hour
        FROM taken AS t
        CROSS JOIN unnest(t.channels) AS c (id)
        WHERE t.onward AND c.id = ANY (ids)
    ),
    hours AS (
        INSERT INTO plant.rollup_dirty (from_time, to_time, channels, hours)
        SELECT o.hour, o.hour + INTERVAL '1 hour', array_agg(DISTINCT o.id), true FROM onward AS o GROUP BY o.hour
    )
    SELECT array_agg(DISTINCT o.id) INTO forced FROM onward AS o;
    -- Where retention took raw data, minutes can't be made anew: they stay as they are. So do hours without their minutes.
    ids := plant.not_dropped(ids, 'raw', "from");
    discrete := ARRAY(SELECT i.id FROM unnest(ids) AS i (id) INTERSECT SELECT c.id FROM unnest(discrete) AS c (id));
    IF ids = '{}' THEN
        RETURN;
    END IF;
    -- Packed days become rows again.
    WITH unpacked AS (
        DELETE FROM plant.rollup_1m_packed AS p
        WHERE p.day = of_day AND p.channel_id = ANY (ids)
        RETURNING p
    )
    INSERT INTO plant.rollup_1m
    SELECT u.* FROM unpacked CROSS JOIN LATERAL plant.unpack_minutes(unpacked.p, '-infinity', 'infinity') AS u;

    WITH fresh AS MATERIALIZED (
        SELECT m AS line, m.channel_id, m.bucket FROM plant.minutes_of(ids, "from", "to") AS m
    ),
    old AS MATERIALIZED (
        SELECT r AS line, r.channel_id, r.bucket
        FROM unnest(ids) AS c (id)
        CROSS JOIN LATERAL (SELECT o.* FROM plant.rollup_1m AS o
                            WHERE o.channel_id = c.id AND o.bucket >= "from" AND o.bucket < "to" OFFSET 0) AS r
    ),
    gone AS (
        SELECT o.channel_id, o.bucket
        FROM old AS o
        WHERE NOT EXISTS (SELECT FROM fresh AS f WHERE f.channel_id = o.channel_id AND f.bucket = o.bucket)
    ),
    new AS (
        SELECT f.line, f.channel_id, f.bucket
        FROM fresh AS f
        LEFT JOIN old AS o ON o.channel_id = f.channel_id AND o.bucket = f.bucket
        WHERE o.line IS NULL OR o.line *<> f.line
    ),
    put AS (
        INSERT INTO plant.rollup_1m SELECT (n.line).* FROM new AS n
        ON CONFLICT (channel_id, bucket) DO UPDATE
        SET n = excluded.n, min = excluded.min, max = excluded.max, sum = excluded.sum, area = excluded.area,
            first = excluded.first, last = excluded.last, known = excluded.known, first_time = excluded.first_time,
            last_time = excluded.last_time, n_good = excluded.n_good, holds = excluded.holds
    ),
    -- What each channel carries out of here: where it is something else than before, the next minute is to be made anew.
    carried AS (
        SELECT coalesce(f.channel_id, o.channel_id) AS channel_id
        FROM (SELECT DISTINCT ON (f.channel_id) f.channel_id, f.line FROM fresh AS f ORDER BY f.channel_id, f.bucket DESC) AS f
        FULL JOIN (SELECT DISTINCT ON (o.channel_id) o.channel_id, o.line FROM old AS o ORDER BY o.channel_id, o.bucket DESC) AS o
            ON o.channel_id = f.channel_id
        WHERE float8send((f.line).last) IS DISTINCT FROM float8send((o.line).last)
           OR (f.line).last_time IS DISTINCT FROM (o.line).last_time OR (f.line).holds IS DISTINCT FROM (o.line).holds
        UNION
        SELECT c.id FROM unnest(forced) AS c (id)
    ),
    next AS MATERIALIZED (
        SELECT a.bucket, array_agg(c.channel_id) AS channels
        FROM carried AS c
        CROSS JOIN LATERAL plant.minute_after(c.channel_id, "to") AS a
        GROUP BY a.bucket
    ),
    hours AS (
        SELECT plant.hour_of(m.bucket) AS hour, array_agg(DISTINCT m.channel_id) AS channels
        FROM (
            SELECT n.channel_id, n.bucket FROM new AS n
            UNION ALL
            SELECT g.channel_id, g.bucket FROM gone AS g
            UNION ALL
            -- An hour depends on what is carried into its first minute, though that may be the same itself.
            SELECT f.channel_id, f.bucket FROM fresh AS f WHERE NOT whole OR f.channel_id = ANY (discrete)
        ) AS m
        GROUP BY plant.hour_of(m.bucket)
        UNION ALL
        SELECT plant.hour_of(n.bucket), n.channels FROM next AS n
    ),
    marked AS (
        INSERT INTO plant.rollup_dirty (from_time, to_time, channels, hours)
        SELECT n.bucket, n.bucket + INTERVAL '1 minute', n.channels, false FROM next AS n
        UNION ALL
        SELECT h.hour, h.hour + INTERVAL '1 hour', CASE WHEN NOT whole OR cardinality(h.channels) <= 500 THEN h.channels END, true
        FROM hours AS h
    )
    SELECT array_agg(g.channel_id), array_agg(g.bucket) INTO gone_ids, gone_buckets FROM gone AS g;

    IF gone_ids IS NOT NULL THEN
        DELETE FROM plant.rollup_1m AS r USING unnest(gone_ids, gone_buckets) AS g (channel_id, bucket)
        WHERE r.channel_id = g.channel_id AND r.bucket = g.bucket AND r.bucket >= "from" AND r.bucket < "to";
    END IF;
    IF discrete <> '{}' THEN
        IF EXISTS (SELECT FROM plant.rollup_states_1m AS r
                   WHERE r.channel_id = ANY (discrete) AND r.bucket >= "from" AND r.bucket < "to") THEN
            DELETE FROM plant.rollup_states_1m AS r
            WHERE r.channel_id = ANY (discrete) AND r.bucket >= "from" AND r.bucket < "to";
        END IF;
        INSERT INTO plant.rollup_states_1m SELECT s.* FROM plant.state_minutes_of(discrete, "from", "to") AS s;
    END IF;
END
$$;
