-- The first whole hour between two times within a chunk for which channels have rows in samples_raw, and these
-- channels. One index lookup per channel finds its oldest row.
CREATE OR REPLACE FUNCTION plant._hour_to_pack(ids int[], "from" timestamptz, "to" timestamptz, OUT hour timestamptz,
                                               OUT channels int[])
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog
SET plan_cache_mode = force_custom_plan -- chunks are known to the planner by their times
SET jit = off
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
    until CONSTANT timestamptz := plant.hour_of("to");
BEGIN
    SELECT o.hour, array_agg(o.id ORDER BY o.id)
    INTO hour, channels
    FROM (
        SELECT c.id, plant.hour_of(r.time) AS hour
        FROM unnest(ids) AS c (id)
        CROSS JOIN LATERAL (SELECT s.time FROM plant.samples_raw AS s
                            WHERE s.channel_id = c.id AND s.time >= "from" AND s.time < until
                            ORDER BY s.time LIMIT 1) AS r
    ) AS o
    GROUP BY o.hour
    ORDER BY o.hour
    LIMIT 1;
END
$$;
