-- The next stored minute of a channel within hold_limit. A channel's day is never partly packed, so only packed days up
-- to the row are searched.
CREATE OR REPLACE FUNCTION plant.minute_after(channel int, at timestamptz) RETURNS TABLE (bucket timestamptz)
LANGUAGE sql STABLE PARALLEL SAFE ROWS 1
BEGIN ATOMIC
    SELECT coalesce(p.bucket, r.bucket)
    FROM (SELECT) AS one
    LEFT JOIN LATERAL (
        SELECT r.bucket
        FROM plant.rollup_1m AS r
        WHERE r.channel_id = channel AND r.bucket >= at AND r.bucket <= plant.add_interval(at, plant.hold_limit())
        ORDER BY r.bucket LIMIT 1
    ) AS r ON true
    LEFT JOIN LATERAL (
        SELECT u.bucket
        FROM plant.rollup_1m_packed AS p
        CROSS JOIN LATERAL plant.unpack_minutes(
            p, at, plant.add_interval(at, plant.hold_limit() + INTERVAL '1 minute')) AS u
        WHERE p.channel_id = channel AND p.day >= plant.day_of(at)
          AND p.day <= plant.add_interval(at, plant.hold_limit()) AND (r.bucket IS NULL OR p.day <= r.bucket)
        ORDER BY u.bucket LIMIT 1
    ) AS p ON true
    WHERE coalesce(p.bucket, r.bucket) IS NOT NULL;
END;
