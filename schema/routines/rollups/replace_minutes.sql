-- replace_minutes: recompute the rows of rollup_1m of the channels ids between two times of one day
--
-- Only rows that differ are written. What depends on them is marked dirty: their hours (of any channel if whole, where
-- all channels are recomputed), and the next minute of each channel whose value carried out of the bounds has changed.
-- onward: the channels whose gap ends the value that is carried on, with the last minute of the gap. If a minute has
-- samples after a gap, the gap does not change the value carried on, and the next minute is left alone.
--
-- A DELETE is planned over all chunks, whatever its bounds, so it runs only if there is something to delete.
CREATE OR REPLACE FUNCTION plant.replace_minutes(ids int[], "from" timestamptz, "to" timestamptz, whole boolean,
                                                 onward_ids int[], onward_minutes timestamptz[])
    RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog
SET plan_cache_mode = force_custom_plan
SET jit = off
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
    obsolete_ids     int[];
    obsolete_buckets timestamptz[];
    stepped CONSTANT int[] := ARRAY(SELECT c.id FROM plant.channel AS c
                                    WHERE c.kind IN ('discrete', 'counter') AND c.id = ANY (ids));
BEGIN
    WITH fresh AS MATERIALIZED (
        SELECT m AS line, m.channel_id, m.bucket FROM plant.minutes_of(ids, "from", "to") AS m
    ),
    old AS MATERIALIZED (
        SELECT r AS line, r.channel_id, r.bucket
        FROM unnest(ids) AS c (id)
        CROSS JOIN LATERAL (SELECT o.* FROM plant.rollup_1m AS o
                            WHERE o.channel_id = c.id AND o.bucket >= "from" AND o.bucket < "to" OFFSET 0) AS r
    ),
    obsolete AS (
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
    upserted AS (
        INSERT INTO plant.rollup_1m SELECT (n.line).* FROM new AS n
        ON CONFLICT (channel_id, bucket) DO UPDATE
        SET n = excluded.n, min = excluded.min, max = excluded.max, sum = excluded.sum, area = excluded.area,
            first = excluded.first, last = excluded.last, known = excluded.known, first_time = excluded.first_time,
            last_time = excluded.last_time, n_good = excluded.n_good, holds = excluded.holds
    ),
    -- Channels whose value carried out of the bounds has changed: their next minute becomes dirty.
    carried AS (
        SELECT coalesce(f.channel_id, o.channel_id) AS channel_id
        FROM (SELECT DISTINCT ON (f.channel_id) f.channel_id, f.line FROM fresh AS f
              ORDER BY f.channel_id, f.bucket DESC) AS f
        FULL JOIN (SELECT DISTINCT ON (o.channel_id) o.channel_id, o.line FROM old AS o
                   ORDER BY o.channel_id, o.bucket DESC) AS o
            ON o.channel_id = f.channel_id
        WHERE float8send((f.line).last) IS DISTINCT FROM float8send((o.line).last)
           OR (f.line).last_time IS DISTINCT FROM (o.line).last_time OR (f.line).holds IS DISTINCT FROM (o.line).holds
        UNION
        -- A gap that begins after the last minute with samples is in no row.
        SELECT o.id
        FROM unnest(onward_ids, onward_minutes) AS o (id, minute)
        WHERE NOT EXISTS (SELECT FROM fresh AS f WHERE f.channel_id = o.id AND f.bucket >= o.minute)
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
            SELECT g.channel_id, g.bucket FROM obsolete AS g
            UNION ALL
            -- An hour depends on the value carried into its first minute, even if that minute has not changed.
            SELECT f.channel_id, f.bucket FROM fresh AS f WHERE NOT whole OR f.channel_id = ANY (stepped)
        ) AS m
        GROUP BY plant.hour_of(m.bucket)
        UNION ALL
        SELECT plant.hour_of(n.bucket), n.channels FROM next AS n
    ),
    marked AS (
        INSERT INTO plant.rollup_dirty (from_time, to_time, channels, hours)
        SELECT n.bucket, n.bucket + INTERVAL '1 minute', n.channels, false FROM next AS n
        UNION ALL
        SELECT h.hour, h.hour + INTERVAL '1 hour',
               CASE WHEN NOT whole OR cardinality(h.channels) <= 500 THEN h.channels END, true
        FROM hours AS h
    )
    SELECT array_agg(g.channel_id), array_agg(g.bucket) INTO obsolete_ids, obsolete_buckets FROM obsolete AS g;

    IF obsolete_ids IS NOT NULL THEN
        DELETE FROM plant.rollup_1m AS r USING unnest(obsolete_ids, obsolete_buckets) AS g (channel_id, bucket)
        WHERE r.channel_id = g.channel_id AND r.bucket = g.bucket AND r.bucket >= "from" AND r.bucket < "to";
    END IF;
END
$$;
