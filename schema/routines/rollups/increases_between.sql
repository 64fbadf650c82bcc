-- Rows of increases_1m or increases_1h (width: a minute or an hour) with from <= bucket < to, without reading others
-- but those of hold_limit before, for the last reading before the first bucket. It is inlined: a condition on
-- channel_id limits what is read, too.
CREATE OR REPLACE FUNCTION plant.increases_between(width interval, "from" timestamptz, "to" timestamptz)
RETURNS TABLE (channel_id int, bucket timestamptz, increase float8, seconds float8)
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT s.channel_id, s.bucket, s.within + coalesce(plant.counter_increase(s.before, s.first, s.wraps_at), 0),
           date_part('epoch', s.last_time - coalesce(s.before_time, s.first_time))
    FROM (
        SELECT c.id AS channel_id, r.bucket, r.first, r.first_time, r.last_time, c.wraps_at,
               coalesce(i.increase, plant.counter_increase(r.first, r.last, c.wraps_at)) AS within,
               lag(r.last) OVER course AS before, lag(r.last_time) OVER course AS before_time
        FROM (
            SELECT c.id, (c.attributes ->> 'wraps_at')::float8 AS wraps_at
            FROM plant.channel AS c
            WHERE c.kind = 'counter'
        ) AS c
        CROSS JOIN LATERAL ( -- a join is planned as if it were of all channels' buckets
            SELECT m.* FROM plant.rollup_1m AS m
            WHERE width = INTERVAL '1 minute' AND m.channel_id = c.id
              AND m.bucket >= "from" - plant.hold_limit() - width AND m.bucket < "to"
            UNION ALL
            SELECT u.*
            FROM plant.rollup_1m_packed AS p
            CROSS JOIN LATERAL plant.unpack_minutes(p, "from" - plant.hold_limit() - width, "to") AS u
            WHERE width = INTERVAL '1 minute' AND p.channel_id = c.id
              AND p.day >= plant.day_of("from" - plant.hold_limit() - width) AND p.day < "to"
            UNION ALL
            SELECT h.* FROM plant.rollup_1h AS h
            WHERE width = INTERVAL '1 hour' AND h.channel_id = c.id
              AND h.bucket >= "from" - plant.hold_limit() - width AND h.bucket < "to"
        ) AS r
        LEFT JOIN (
            SELECT m.* FROM plant.rollup_increases_1m AS m
            WHERE width = INTERVAL '1 minute' AND m.bucket >= "from" - plant.hold_limit() - width AND m.bucket < "to"
            UNION ALL
            SELECT h.* FROM plant.rollup_increases_1h AS h
            WHERE width = INTERVAL '1 hour' AND h.bucket >= "from" - plant.hold_limit() - width AND h.bucket < "to"
        ) AS i ON i.channel_id = c.id AND i.bucket = r.bucket
        WHERE r.n_good > 0 AND r.min >= -1e280 AND r.max <= 1e280 AND r.last_time >= "from" - plant.hold_limit()
        WINDOW course AS (PARTITION BY c.id ORDER BY r.bucket)
    ) AS s
    WHERE s.bucket >= "from";
END;
COMMENT ON FUNCTION plant.increases_between IS
    'Rows of increases_1m or increases_1h (width: 1 minute or 1 hour) between two times, without reading others.';
