-- Stored minutes with from <= bucket < to; reads only the channels' days within the bounds.
CREATE OR REPLACE FUNCTION plant.minutes_between(channels int[], "from" timestamptz, "to" timestamptz)
RETURNS SETOF plant.rollup_1m
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT r.* FROM plant.rollup_1m AS r
    WHERE r.channel_id = ANY (channels) AND r.bucket >= "from" AND r.bucket < "to"
    UNION ALL
    SELECT u.*
    FROM plant.rollup_1m_packed AS p
    CROSS JOIN LATERAL plant.unpack_minutes(p, "from", "to") AS u
    WHERE p.channel_id = ANY (channels) AND p.day >= plant.day_of("from") AND p.day < "to";
END;
COMMENT ON FUNCTION plant.minutes_between(int[], timestamptz, timestamptz) IS
    'Rows of samples_1m by channels and times, with sums (sum, area, known) in place of averages.';
