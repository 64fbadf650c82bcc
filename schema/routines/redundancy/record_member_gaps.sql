-- Records gaps of one member of a redundant pair, and derives those of the pair: where both members have a gap, for the
-- channels that both of these apply to. The parameters are those of upsert_gaps in queries/write.sql. Returns the begin
-- (µs) and the channels of new gaps of the pair.
--
-- A gap of the pair begins where the later one of both begins, and has its reason, unless that member stood by or was
-- away. What one member has after all is a gap no longer: to_time becomes from_time.
CREATE OR REPLACE FUNCTION plant.record_member_gaps(
    by_member int, sources int[], channels int[], begins timestamptz[], ends timestamptz[], reasons text[],
    details text[], backfills boolean[], revisions bigint[]
) RETURNS TABLE (gap_begin bigint, gap_channels int[])
LANGUAGE plpgsql
SET search_path = pg_catalog
AS $$
BEGIN
    -- Both members may record at the same time; each has to see what the other one committed.
    PERFORM FROM plant.source AS s WHERE s.id = ANY (sources) ORDER BY s.id FOR NO KEY UPDATE;
    INSERT INTO plant.member_gap AS g
        (source_id, channel_id, member, from_time, to_time, reason, detail, backfilled, revision)
    SELECT n.source_id, n.channel_id, by_member, n.from_time, n.to_time, n.reason, n.detail, n.backfilled, n.revision
    FROM unnest(sources, channels, begins, ends, reasons, details, backfills, revisions)
        AS n (source_id, channel_id, from_time, to_time, reason, detail, backfilled, revision)
    ON CONFLICT (source_id, channel_id, member, from_time) DO UPDATE
    SET to_time = excluded.to_time, reason = excluded.reason, detail = excluded.detail,
        backfilled = excluded.backfilled, revision = excluded.revision
    WHERE g.revision < excluded.revision;
    RETURN QUERY
    WITH changed AS (
        SELECT n.source_id, min(n.from_time) AS since
        FROM unnest(sources, begins) AS n (source_id, from_time)
        GROUP BY n.source_id
    ),
    both_missing AS (
        SELECT DISTINCT ON (c.source_id, t.channel_id, t.from_time)
            c.source_id, t.channel_id, t.from_time, t.to_time,
            CASE WHEN b.reason = 'standby' OR a.reason NOT IN ('away', 'standby')
                      AND (b.reason = 'away' OR a.from_time > b.from_time)
                 THEN a.reason ELSE b.reason END AS reason,
            format('member 1: %s; member 2: %s', concat_ws(', ', a.reason, nullif(a.detail, '')),
                   concat_ws(', ', b.reason, nullif(b.detail, ''))) AS detail,
            a.backfilled OR b.backfilled AS backfilled,
            greatest(a.revision, b.revision) AS revision
        FROM changed AS c
        JOIN plant.member_gap AS a ON a.source_id = c.source_id AND a.member = 1
        JOIN plant.member_gap AS b ON b.source_id = c.source_id AND b.member = 2
                                  AND (a.channel_id = b.channel_id OR a.channel_id IS NULL OR b.channel_id IS NULL)
        CROSS JOIN LATERAL (
            SELECT coalesce(a.channel_id, b.channel_id) AS channel_id,
                   greatest(a.from_time, b.from_time) AS from_time,
                   least(a.to_time, b.to_time) AS to_time -- NULL only if both are open
        ) AS t
        WHERE t.from_time >= c.since AND t.from_time < coalesce(t.to_time, 'infinity')
        ORDER BY c.source_id, t.channel_id, t.from_time, t.to_time DESC NULLS FIRST
    ),
    upserted AS (
        INSERT INTO plant.gap AS g
            (source_id, channel_id, from_time, to_time, reason, detail, backfilled_at, revision)
        SELECT m.source_id, m.channel_id, m.from_time, m.to_time, m.reason, m.detail,
               CASE WHEN m.backfilled THEN clock_timestamp() END, m.revision
        FROM both_missing AS m
        ORDER BY m.source_id, m.channel_id, m.from_time
        ON CONFLICT (source_id, channel_id, from_time) DO UPDATE
        SET to_time = excluded.to_time, reason = excluded.reason, detail = excluded.detail,
            backfilled_at = excluded.backfilled_at, revision = excluded.revision
        WHERE (g.to_time, g.reason, g.detail, g.backfilled_at IS NULL)
              IS DISTINCT FROM (excluded.to_time, excluded.reason, excluded.detail, excluded.backfilled_at IS NULL)
        RETURNING g.source_id, g.channel_id, g.from_time,
                  g.xmax = 0 AND g.backfilled_at IS NULL AS is_new -- 0: inserted
    ),
    covered AS (
        UPDATE plant.gap AS g
        SET to_time = g.from_time, detail = 'the other member has the samples'
        FROM changed AS c
        WHERE g.source_id = c.source_id AND g.from_time >= c.since AND g.to_time IS DISTINCT FROM g.from_time
          AND NOT EXISTS (SELECT FROM both_missing AS m
                          WHERE m.source_id = g.source_id AND m.from_time = g.from_time
                            AND m.channel_id IS NOT DISTINCT FROM g.channel_id)
    )
    SELECT (extract(epoch FROM u.from_time) * 1000000)::int8, array_agg(DISTINCT c.id)
    FROM upserted AS u
    CROSS JOIN LATERAL (
        SELECT u.channel_id AS id WHERE u.channel_id IS NOT NULL
        UNION ALL
        SELECT c.id FROM plant.channel AS c WHERE u.channel_id IS NULL AND c.source_id = u.source_id
    ) AS c
    WHERE u.is_new
    GROUP BY u.from_time;
END
$$;
COMMENT ON FUNCTION plant.record_member_gaps IS
    'Records gaps of one member of a redundant pair, and derives the gaps of the pair.';
REVOKE EXECUTE ON FUNCTION plant.record_member_gaps FROM PUBLIC;
GRANT EXECUTE ON FUNCTION plant.record_member_gaps TO plant_ingest, plant_owner;
