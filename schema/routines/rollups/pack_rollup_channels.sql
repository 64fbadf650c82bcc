-- Pack the minutes of some channels and one day; false if another session works on rollups and nothing was done.
CREATE OR REPLACE FUNCTION plant.pack_rollup_channels(of_day timestamptz, ids int[]) RETURNS boolean
LANGUAGE plpgsql
SET search_path = pg_catalog
SET plan_cache_mode = force_custom_plan
SET jit = off
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
BEGIN
    IF NOT pg_try_advisory_xact_lock(7361023400154) THEN
        RETURN false;
    END IF;
    INSERT INTO plant.rollup_1m_packed
    SELECT p.*
    FROM unnest(ids) AS c (id)
    CROSS JOIN LATERAL plant.pack_minutes(c.id, of_day) AS p
    WHERE p.rows > 0;
    DELETE FROM plant.rollup_1m AS r
    WHERE r.channel_id = ANY (ids) AND r.bucket >= of_day AND r.bucket < of_day + INTERVAL '24 hours';
    RETURN true;
END
$$;
