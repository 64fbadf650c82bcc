-- Those of the channels ids that have minutes from a time on, as rows or in packed days. A channel's day is never
-- partly packed.
CREATE OR REPLACE FUNCTION plant.channels_with_minutes(ids int[], "from" timestamptz) RETURNS int[]
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog
SET plan_cache_mode = force_custom_plan
SET jit = off
SET enable_seqscan = off
SET enable_bitmapscan = off
SET max_parallel_workers_per_gather = 0
AS $$
BEGIN
    RETURN ARRAY(
        SELECT c.id
        FROM unnest(ids) AS c (id)
        WHERE EXISTS (SELECT FROM plant.rollup_1m AS r WHERE r.channel_id = c.id AND r.bucket >= "from" OFFSET 0)
           OR EXISTS (SELECT FROM plant.rollup_1m_packed AS p
                      WHERE p.channel_id = c.id AND p.day >= plant.day_of("from") OFFSET 0));
END
$$;
