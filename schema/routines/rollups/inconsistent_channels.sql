-- Those of the channels ids whose newest stored minute is not the one that the writer, about to close a minute,
-- continues from: the values carried into the minute were samples at times (µs since 1970), or unknown (NULL: Bad, NaN,
-- a gap).
CREATE OR REPLACE FUNCTION plant.inconsistent_channels(ids int[], times int8[], "values" float8[], minute timestamptz)
    RETURNS int[]
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
        FROM unnest(ids, times, "values") AS c (id, time, value)
        LEFT JOIN LATERAL (
            SELECT r.bucket, r.last_time, r.last, r.holds
            FROM plant.rollup_1m AS r
            WHERE r.channel_id = c.id AND r.bucket >= plant.add_interval(minute, -plant.hold_limit())
            ORDER BY r.bucket DESC LIMIT 1
        ) AS r ON true
        CROSS JOIN LATERAL (SELECT plant.add_interval(r.bucket, INTERVAL '1 minute') AS ended) AS e
        WHERE NOT coalesce(r.bucket < minute
                           AND CASE WHEN c.value IS NULL
                                    THEN NOT r.holds OR (e.ended < minute
                                                         AND plant.gap_begins_within(c.id, e.ended, minute))
                                    ELSE r.holds AND r.last = c.value
                                         AND r.last_time = TIMESTAMPTZ 'epoch' + c.time * INTERVAL '1 microsecond'
                                         AND (e.ended >= minute
                                              OR NOT plant.gap_begins_within(c.id, e.ended, minute)) END,
                           false));
END
$$;
