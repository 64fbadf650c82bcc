-- The one sanctioned way to delete samples: those of the channels with from <= time < to, in whatever form. Leaves an event
-- "deleted" with who, why and how many; returns how many.
CREATE FUNCTION plant.delete_samples(channels int[], "from" timestamptz, "to" timestamptz, why text) RETURNS bigint
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
    -- Nobody packs or moves rows meanwhile.
    PERFORM pg_advisory_xact_lock(7361023400153);
    WITH gone AS (
        DELETE FROM plant.samples_raw AS r
        WHERE r.channel_id = ANY (channels) AND r.time >= "from" AND r.time < "to"
        RETURNING r.time, r.channel_id
    )
    SELECT count(*) AS n, min(g.time) AS first, max(g.time) AS last
    INTO from_rows
    FROM gone AS g
    WHERE g.time >= (SELECT u.until FROM plant.packed_until AS u) OR NOT plant.is_packed(g.channel_id, g.time);
    WITH cut AS (
        DELETE FROM plant.samples_packed AS p
        WHERE p.channel_id = ANY (channels) AND p.hour > "from" - INTERVAL '1 hour' AND p.hour < "to"
        RETURNING p
    ),
    sample AS MATERIALIZED (
        SELECT (c.p).channel_id, (c.p).hour, u.time, u.value, u.status, u.time >= "from" AND u.time < "to" AS gone
        FROM cut AS c
        CROSS JOIN LATERAL plant.unpack(c.p) AS u
    ),
    kept AS (
        INSERT INTO plant.samples_packed
        SELECT s.*
        FROM (
            SELECT k.channel_id, k.hour, array_agg(k.time ORDER BY k.time) AS times,
                   array_agg(k.value ORDER BY k.time) AS "values", array_agg(k.status ORDER BY k.time) AS statuses
            FROM sample AS k
            WHERE NOT k.gone
            GROUP BY k.channel_id, k.hour
        ) AS g
        CROSS JOIN LATERAL plant.pack(g.channel_id, g.hour, g.times, g."values", g.statuses) AS s
    )
    SELECT count(*) AS n, min(s.time) AS first, max(s.time) AS last INTO from_packed FROM sample AS s WHERE s.gone;
    IF from_rows.n + from_packed.n > 0 THEN
        INSERT INTO plant.rollup_dirty (from_time, to_time, channels)
        VALUES (plant.minute_of(least(from_rows.first, from_packed.first)),
                plant.minute_of(greatest(from_rows.last, from_packed.last)) + INTERVAL '1 minute', channels);
    END IF;
    at := clock_timestamp();
    detail := jsonb_build_object('by', session_user, 'samples', from_rows.n + from_packed.n, 'channels', channels,
                                 'from', "from", 'to', "to");
    INSERT INTO plant.event (time, id, type, channel_id, text, detail)
    VALUES (at, hashtextextended(concat_ws(' ', at::text, why, detail::text), 8) & 9223372036854775807, 'deleted',
            CASE WHEN cardinality(channels) = 1 THEN channels[1] END, why, detail);
    RETURN from_rows.n + from_packed.n;
END
$$;
COMMENT ON FUNCTION plant.delete_samples IS 'Delete samples of the channels with from <= time < to, and say so in an event: who, why, how many. A replay of what was deleted would land again.';
REVOKE EXECUTE ON FUNCTION plant.delete_samples FROM PUBLIC;
GRANT EXECUTE ON FUNCTION plant.delete_samples TO plant_owner;
