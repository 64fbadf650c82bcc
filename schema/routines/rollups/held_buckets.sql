-- Minutes or hours (width) in which channels have no sample, but a value that holds: known is the time in which it
-- does, in µs. It holds until the next stored bucket, until a gap begins, or for hold_limit; so nothing is stored of
-- them, and they are as exact as the stored buckets around them, whenever data came. Behind a bucket that is still to
-- be recomputed (rollup_dirty) nothing is known until the next stored one.
--
-- A point is a stored bucket, a gap, or a bucket that is dirty. A gap that begins in a stored bucket, which accounts
-- for it, sorts before it. A packed day with all its minutes is one point. Limit channel_id where this is used; without
-- it, the buckets of all channels are sorted, or of those of one kind.
CREATE OR REPLACE FUNCTION plant.held_buckets(
    width interval, "from" timestamptz, "to" timestamptz, kind text DEFAULT NULL
)
RETURNS TABLE (channel_id int, bucket timestamptz, value float8, known bigint, holds boolean)
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT r.channel_id, b.bucket, r.value, k.known, b.bucket + width <= r.until
    FROM (
        SELECT p.channel_id, p.ends, p.value, least(p.time + plant.hold_limit(), min(p.begins) OVER later) AS until
        FROM (
            SELECT m.channel_id, m.bucket AS begins, m.bucket + width AS ends,
                   CASE WHEN m.holds THEN m.last END AS value, m.last_time AS time
            FROM plant.rollup_1m AS m
            WHERE width = INTERVAL '1 minute' AND m.bucket >= "from" - plant.hold_limit() - width AND m.bucket < "to"
            UNION ALL
            SELECT m.channel_id, CASE WHEN p.minute_ IS NULL THEN p.day ELSE m.bucket END, m.bucket + width,
                   CASE WHEN m.holds THEN m.last END, m.last_time
            FROM plant.rollup_1m_packed AS p
            CROSS JOIN LATERAL plant.unpack_minutes(
                p, CASE WHEN p.minute_ IS NULL THEN p.day + INTERVAL '1439 minutes' ELSE '-infinity' END,
                'infinity') AS m
            WHERE width = INTERVAL '1 minute' AND p.day >= plant.day_of("from" - plant.hold_limit() - width)
              AND p.day < "to"
            UNION ALL
            SELECT h.channel_id, h.bucket, h.bucket + width, CASE WHEN h.holds THEN h.last END, h.last_time
            FROM plant.rollup_1h AS h
            WHERE width = INTERVAL '1 hour' AND h.bucket >= "from" - plant.hold_limit() - width AND h.bucket < "to"
            UNION ALL
            SELECT g.channel_id, g.from_time, g.from_time, NULL, NULL
            FROM plant.gap_channel AS g
            WHERE g.from_time >= "from" - plant.hold_limit() AND g.from_time < "to" AND g.backfilled_at IS NULL
            UNION ALL
            SELECT c.id, date_bin(width, d.from_time, TIMESTAMPTZ '2000-01-01 00:00:00+00'),
                   date_bin(width, d.to_time + width - INTERVAL '1 microsecond', TIMESTAMPTZ '2000-01-01 00:00:00+00'),
                   NULL, NULL
            FROM plant.rollup_dirty AS d
            CROSS JOIN LATERAL unnest(coalesce(d.channels, (SELECT array_agg(a.id) FROM plant.channel AS a))) AS c (id)
            WHERE (width = INTERVAL '1 hour' OR NOT d.hours)
              AND d.to_time > "from" - plant.hold_limit() - width AND d.from_time < "to"
        ) AS p
        WHERE held_buckets.kind IS NULL
           OR p.channel_id IN (SELECT c.id FROM plant.channel AS c WHERE c.kind = held_buckets.kind)
        WINDOW later AS (PARTITION BY p.channel_id ORDER BY p.ends DESC, p.value IS NULL DESC
                         ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
    ) AS r
    CROSS JOIN LATERAL generate_series(
        -- The last samples of a minute are still arriving for some seconds.
        r.ends, least(r.until - INTERVAL '1 microsecond', plant.minute_of(now() - INTERVAL '10 seconds') - width),
        width) AS b (bucket)
    CROSS JOIN LATERAL (
        SELECT (date_part('epoch', least(b.bucket + width, r.until) - b.bucket) * 1e6)::bigint AS known
    ) AS k
    WHERE r.value IS NOT NULL AND r.until > r.ends AND b.bucket >= "from" AND b.bucket < "to";
END;
