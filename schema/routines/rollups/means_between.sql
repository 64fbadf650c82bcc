-- Rows of samples_1m or samples_1h (width: a minute or an hour) with from <= bucket < to, without reading others. It is
-- inlined: a condition on channel_id limits what is read, too.
CREATE OR REPLACE FUNCTION plant.means_between(width interval, "from" timestamptz, "to" timestamptz)
RETURNS TABLE (channel_id int, bucket timestamptz, n int, n_good int, min float8, max float8, avg float8, twa float8,
               seconds float8, first float8, last float8, first_time timestamptz, last_time timestamptz, holds boolean)
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT r.channel_id, r.bucket, r.n, r.n_good, r.min, r.max, plant.rollup_mean(r.sum, r.n_good, r.min, r.max),
           r.area / nullif(r.known / 1e6::float8, 0), r.known / 1e6::float8, r.first, r.last, r.first_time,
           r.last_time, r.holds
    FROM (
        SELECT m.* FROM plant.rollup_1m AS m
        WHERE width = INTERVAL '1 minute' AND m.bucket >= "from" AND m.bucket < "to"
        UNION ALL
        SELECT u.*
        FROM plant.rollup_1m_packed AS p
        CROSS JOIN LATERAL plant.unpack_minutes(p, "from", "to") AS u
        WHERE width = INTERVAL '1 minute' AND p.day >= plant.day_of("from") AND p.day < "to"
        UNION ALL
        SELECT h.* FROM plant.rollup_1h AS h WHERE width = INTERVAL '1 hour' AND h.bucket >= "from" AND h.bucket < "to"
    ) AS r
    UNION ALL
    SELECT h.channel_id, h.bucket, 0, 0, NULL::float8, NULL::float8, NULL::float8, h.value, h.known / 1e6::float8,
           NULL::float8, NULL::float8, NULL::timestamptz, NULL::timestamptz, h.holds
    FROM plant.held_buckets(width, "from", "to") AS h;
END;
COMMENT ON FUNCTION plant.means_between IS
    'Rows of samples_1m or samples_1h (width: 1 minute or 1 hour) between two times, without reading others.';
