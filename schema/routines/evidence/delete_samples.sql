-- The only supported way to delete samples, on sealed days by `plantlog evidence delete`, which signs what it deletes:
-- those of the channels with from <= time < to, in any storage form. Adds an event "deleted" with user, reason and
-- number; returns the number. A deleted value may have been carried into a later minute although its own minute has not
-- been computed yet and then has no row. Therefore the next minute is recomputed, as for gaps.
CREATE OR REPLACE FUNCTION plant.delete_samples(channels int[], "from" timestamptz, "to" timestamptz, why text)
    RETURNS bigint
LANGUAGE plpgsql
SET search_path = pg_catalog
SET plan_cache_mode = force_custom_plan
SET jit = off
AS $$
DECLARE
    from_rows   record;
    from_packed record;
    detail      jsonb;
    at          timestamptz;
BEGIN
    IF coalesce(btrim(why), '') = '' THEN
        RAISE EXCEPTION 'delete_samples: say why' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF coalesce(current_setting('plant.deletion', true), '') <> 'sealed'
       AND EXISTS (SELECT FROM plant.day_seal AS s
                   WHERE s.day::timestamp AT TIME ZONE 'UTC' < "to"
                     AND (s.day + 1)::timestamp AT TIME ZONE 'UTC' > "from") THEN
        RAISE EXCEPTION 'delete_samples: days between % and % are sealed', "from", "to"
            USING ERRCODE = 'restrict_violation', HINT = 'Use `plantlog evidence delete`, which signs the deletion.';
    END IF;
    -- Excludes packing, which moves rows.
    PERFORM pg_advisory_xact_lock(7361023400153);
    WITH deleted AS (
        DELETE FROM plant.samples_raw AS r
        WHERE r.channel_id = ANY (channels) AND r.time >= "from" AND r.time < "to"
        RETURNING r.time, r.channel_id
    )
    SELECT count(*) AS n, min(g.time) AS first, max(g.time) AS last
    INTO from_rows
    FROM deleted AS g
    WHERE g.time >= (SELECT u.until FROM plant.packed_until AS u) OR NOT plant.is_packed(g.channel_id, g.time);
    WITH unpacked AS (
        DELETE FROM plant.samples_packed AS p
        WHERE p.channel_id = ANY (channels) AND p.hour > "from" - INTERVAL '1 hour' AND p.hour < "to"
        RETURNING p
    ),
    sample AS MATERIALIZED (
        SELECT (c.p).channel_id, (c.p).hour, u.time, u.value, u.status, u.time >= "from" AND u.time < "to" AS is_deleted
        FROM unpacked AS c
        CROSS JOIN LATERAL plant.unpack(c.p) AS u
    ),
    remaining AS (
        SELECT k.channel_id, k.hour, k.time, k.value, k.status,
               -- µs since the hour beyond the place: times ascend, so it is not negative, and below 2^32
               round(date_part('epoch', k.time - k.hour) * 1e6)::int8
               - row_number() OVER (PARTITION BY k.channel_id, k.hour ORDER BY k.time) + 1 AS beyond
        FROM sample AS k
        WHERE NOT k.is_deleted
    ),
    -- The plainest form that an hour can have. Rows would be late ones, of which each costs its readers a look-up.
    rewritten AS (
        INSERT INTO plant.samples_packed (hour, start, step, base, divisor, channel_id, n, unit, status, single,
                                          t0, t1, t2, t3, float8s, statuses)
        SELECT k.hour, k.hour + INTERVAL '1 microsecond' * 2155905152, 1, 0, 1, k.channel_id, count(*), 1, 0, false,
               array_agg(((k.beyond & 255) - 128)::int::"char" ORDER BY k.time),
               array_agg(((k.beyond >> 8 & 255) - 128)::int::"char" ORDER BY k.time),
               array_agg(((k.beyond >> 16 & 255) - 128)::int::"char" ORDER BY k.time),
               array_agg(((k.beyond >> 24 & 255) - 128)::int::"char" ORDER BY k.time),
               array_agg(k.value ORDER BY k.time), array_agg(k.status ORDER BY k.time)
        FROM remaining AS k
        GROUP BY k.channel_id, k.hour
    )
    SELECT count(*) AS n, min(s.time) AS first, max(s.time) AS last INTO from_packed
    FROM sample AS s WHERE s.is_deleted;
    IF from_rows.n + from_packed.n > 0 THEN
        INSERT INTO plant.rollup_dirty (from_time, to_time, channels, onward)
        VALUES (plant.minute_of(least(from_rows.first, from_packed.first)),
                plant.minute_of(greatest(from_rows.last, from_packed.last)) + INTERVAL '1 minute', channels, true);
    END IF;
    UPDATE plant.archived_channel AS a SET n = NULL
    WHERE a.channel_id = ANY (channels)
      AND a.day >= ("from" AT TIME ZONE 'UTC')::date AND a.day <= ("to" AT TIME ZONE 'UTC')::date;
    at := clock_timestamp();
    detail := jsonb_build_object('by', session_user, 'samples', from_rows.n + from_packed.n, 'channels', channels,
                                 'from', "from", 'to', "to");
    INSERT INTO plant.event (time, id, type, channel_id, text, detail)
    VALUES (at, hashtextextended(concat_ws(' ', at::text, why, detail::text), 8) & 9223372036854775807, 'deleted',
            CASE WHEN cardinality(channels) = 1 THEN channels[1] END, why, detail);
    RETURN from_rows.n + from_packed.n;
END
$$;
COMMENT ON FUNCTION plant.delete_samples IS
    'Delete samples of the channels with from <= time < to, and record this as an event: user, reason, number. '
    'Refused on sealed days: `plantlog evidence delete` signs what it deletes. '
    'A replay of deleted samples would store them again.';
REVOKE EXECUTE ON FUNCTION plant.delete_samples FROM PUBLIC;
GRANT EXECUTE ON FUNCTION plant.delete_samples TO plant_owner;
