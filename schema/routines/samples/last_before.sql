-- The last sample before a time, if it is not older than since. Packed hours are read only if no newer row exists.
CREATE OR REPLACE FUNCTION plant.last_before(channel int, since timestamptz, before timestamptz)
RETURNS TABLE ("time" timestamptz, value float8, status int)
LANGUAGE sql STABLE PARALLEL SAFE ROWS 1
BEGIN ATOMIC
    SELECT g.time, g.value, g.status
    FROM (SELECT) AS one
    LEFT JOIN LATERAL (
        SELECT r.time, r.value, r.status
        FROM plant.samples_raw AS r
        WHERE r.channel_id = channel AND r.time >= since AND r.time < before
          AND (r.time >= (SELECT u.until FROM plant.packed_until AS u) OR NOT plant.is_packed(r.channel_id, r.time))
        ORDER BY r.time DESC LIMIT 1
    ) AS r ON true
    CROSS JOIN LATERAL (
        SELECT r.time, r.value, r.status WHERE r.time IS NOT NULL
        UNION ALL
        SELECT u.time, u.value, u.status
        FROM (
            -- The hour that contains the time may have no earlier sample; the hour before it has.
            SELECT p
            FROM plant.samples_packed AS p
            WHERE p.channel_id = channel AND p.hour >= plant.hour_of(since) AND p.hour < before
              AND (r.time IS NULL OR r.time < (SELECT u.until FROM plant.packed_until AS u))
            ORDER BY p.hour DESC LIMIT 2
        ) AS two
        CROSS JOIN LATERAL plant.unpack(two.p, since, before) AS u
        WHERE u.time >= since AND u.time < before
    ) AS g
    ORDER BY g.time DESC LIMIT 1;
END;
