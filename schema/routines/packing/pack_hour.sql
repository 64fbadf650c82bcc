-- Move the rows of one hour of some channels from samples_raw to packed hours, in the caller's transaction. Returns the
-- number of rows removed from samples_raw; NULL if another session is packing, in which case nothing was done.
--
-- Of two samples with the same channel and time, the packed one stays because it was first: an equal one is dropped, a
-- different one becomes a conflict event, as in the writer. A row that arrives meanwhile is late, for the next call.
CREATE OR REPLACE FUNCTION plant.pack_hour(from_time timestamptz, channels int[]) RETURNS bigint
LANGUAGE plpgsql
SET search_path = pg_catalog
SET plan_cache_mode = force_custom_plan -- chunks are known to the planner by their times
SET jit = off
AS $$
DECLARE
    left_raw bigint;
    times    timestamptz[];
    ids      bigint[];
BEGIN
    IF NOT pg_try_advisory_xact_lock(7361023400153) THEN
        RETURN NULL;
    END IF;
    WITH moved AS (
        DELETE FROM plant.samples_raw AS r
        WHERE r.time >= from_time AND r.time < from_time + INTERVAL '1 hour' AND r.channel_id = ANY (channels)
        RETURNING r.time, r.channel_id, r.value, r.status
    ),
    packed AS MATERIALIZED (
        SELECT p.channel_id, u.time, u.value, u.status
        FROM plant.samples_packed AS p
        CROSS JOIN LATERAL plant.unpack(p) AS u
        WHERE p.hour = from_time AND p.channel_id IN (SELECT m.channel_id FROM moved AS m)
    ),
    fresh AS MATERIALIZED (
        SELECT m.time, m.channel_id, m.value, m.status
        FROM moved AS m
        WHERE NOT EXISTS (SELECT FROM packed AS p WHERE p.channel_id = m.channel_id AND p.time = m.time)
    ),
    differing AS (
        SELECT m.time, m.channel_id, m.status,
               jsonb_build_object('kept_value', p.value::text, 'kept_status', plant.status_hex(p.status),
                                  'refused_value', m.value::text,
                                  'refused_status', plant.status_hex(m.status)) AS detail
        FROM moved AS m
        JOIN packed AS p ON p.channel_id = m.channel_id AND p.time = m.time
        WHERE float8send(p.value) <> float8send(m.value) OR p.status <> m.status
    ),
    -- One a channel, with the first of its conflicts and their number.
    conflict AS (
        INSERT INTO plant.event (time, id, type, source_id, channel_id, status, detail)
        SELECT d.time, plant.conflict_id(d.time, d.channel_id, d.detail), 'conflict', c.source_id, d.channel_id,
               d.status, d.detail
        FROM (
            SELECT f.channel_id, min(f.time) AS time, (array_agg(f.status ORDER BY f.time))[1] AS status, count(*) AS n,
                   (array_agg(f.detail ORDER BY f.time))[1]
                   || CASE WHEN count(*) = 1 THEN '{}'
                           ELSE jsonb_build_object(
                               'refused', count(*), 'to', max(f.time),
                               'digest', md5(string_agg(concat_ws(' ', f.time, f.detail), ',' ORDER BY f.time))) END
                      AS detail
            FROM differing AS f
            GROUP BY f.channel_id
        ) AS d
        LEFT JOIN plant.channel AS c ON c.id = d.channel_id
        -- The writer may have recorded it before the hour was packed. It writes values in Python's notation.
        WHERE d.n > 1 OR NOT EXISTS (
            SELECT FROM plant.event AS e
            WHERE e.time = d.time AND e.channel_id = d.channel_id AND e.type = 'conflict' AND e.status = d.status
              AND (e.detail ->> 'refused_value')::float8::text = d.detail ->> 'refused_value'
        )
        ON CONFLICT (time, id) DO NOTHING
        RETURNING time, id
    ),
    merged AS (
        SELECT f.channel_id, f.time, f.value, f.status FROM fresh AS f
        UNION ALL
        SELECT p.channel_id, p.time, p.value, p.status
        FROM packed AS p
        WHERE p.channel_id IN (SELECT f.channel_id FROM fresh AS f)
    ),
    hours AS (
        INSERT INTO plant.samples_packed AS old
        SELECT s.*
        FROM (
            SELECT w.channel_id, array_agg(w.time ORDER BY w.time) AS times,
                   array_agg(w.value ORDER BY w.time) AS "values", array_agg(w.status ORDER BY w.time) AS statuses
            FROM merged AS w
            GROUP BY w.channel_id
        ) AS g
        CROSS JOIN LATERAL plant.pack(g.channel_id, from_time, g.times, g."values", g.statuses) AS s
        ON CONFLICT (channel_id, hour) DO UPDATE
        SET start = excluded.start, step = excluded.step, base = excluded.base, divisor = excluded.divisor,
            n = excluded.n, unit = excluded.unit, status = excluded.status, single = excluded.single,
            t0 = excluded.t0, t1 = excluded.t1, t2 = excluded.t2, t3 = excluded.t3,
            v0 = excluded.v0, v1 = excluded.v1, v2 = excluded.v2, v3 = excluded.v3,
            float4s = excluded.float4s, float8s = excluded.float8s, statuses = excluded.statuses
        RETURNING old.channel_id
    ),
    until AS (
        INSERT INTO plant.packed_channel AS c (channel_id, until)
        SELECT h.channel_id, from_time + INTERVAL '1 hour' FROM hours AS h
        ON CONFLICT (channel_id) DO UPDATE SET until = excluded.until WHERE c.until < excluded.until
    )
    SELECT (SELECT count(*) FROM moved), array_agg(c.time), array_agg(c.id) INTO left_raw, times, ids FROM conflict AS c;
    IF times IS NOT NULL THEN
        PERFORM plant.receipt_of_events(times, ids);
    END IF;
    IF left_raw > 0 THEN
        UPDATE plant.packed_until AS u SET until = from_time + INTERVAL '1 hour'
        WHERE u.until < from_time + INTERVAL '1 hour';
        DELETE FROM plant.packed_chunk AS c WHERE c.from_time <= pack_hour.from_time AND c.to_time > pack_hour.from_time;
    END IF;
    RETURN left_raw;
END
$$;
