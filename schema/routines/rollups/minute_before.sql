-- The last stored minute of a channel before a time, within hold_limit. See minute_after.
CREATE OR REPLACE FUNCTION plant.minute_before(channel int, at timestamptz) RETURNS SETOF plant.rollup_1m
LANGUAGE sql STABLE PARALLEL SAFE ROWS 1
BEGIN ATOMIC
    SELECT g.*
    FROM (SELECT) AS one
    LEFT JOIN LATERAL (
        SELECT m AS line, m.bucket
        FROM plant.rollup_1m AS m
        WHERE m.channel_id = channel AND m.bucket >= plant.add_interval(at, -plant.hold_limit() - INTERVAL '1 minute')
          AND m.bucket < at
        ORDER BY m.bucket DESC LIMIT 1
    ) AS r ON true
    CROSS JOIN LATERAL (
        SELECT (r.line).* WHERE r.bucket IS NOT NULL
        UNION ALL
        SELECT u.*
        FROM plant.rollup_1m_packed AS p
        CROSS JOIN LATERAL plant.unpack_minutes(
            p, plant.add_interval(at, -plant.hold_limit() - INTERVAL '1 minute'), at) AS u
        WHERE p.channel_id = channel AND p.day < at
          AND p.day >= plant.day_of(plant.add_interval(at, -plant.hold_limit() - INTERVAL '1 minute'))
          AND (r.bucket IS NULL OR p.day > r.bucket)
    ) AS g
    ORDER BY g.bucket DESC LIMIT 1;
END;
