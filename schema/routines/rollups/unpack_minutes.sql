-- The rows of a packed day with from <= bucket < to.
CREATE OR REPLACE FUNCTION plant.unpack_minutes(p plant.rollup_1m_packed, "from" timestamptz, "to" timestamptz)
RETURNS SETOF plant.rollup_1m
LANGUAGE sql STABLE PARALLEL SAFE ROWS 1440
BEGIN ATOMIC
    SELECT (p).channel_id, coalesce(u.n_, (p).n), b.bucket, CASE WHEN b.n_good > 0 THEN u.min END,
           CASE WHEN b.n_good > 0 THEN u.max END, u.sum, u.area, CASE WHEN b.n_good > 0 THEN u.first END,
           CASE WHEN b.n_good > 0 THEN u.last END, coalesce(u.known_, (p).known)::bigint,
           b.bucket + INTERVAL '1 microsecond' * coalesce(u.first_at_, (p).first_at),
           b.bucket + INTERVAL '1 microsecond' * coalesce(u.last_at_, (p).last_at),
           b.n_good, coalesce(u.holds_, (p).holds) = 1
    FROM (
        -- Range of the requested minutes; all of them if some minutes of the day are missing.
        SELECT CASE WHEN (p).minute_ IS NULL AND "from" > (p).day
                    THEN 1 + ceil(date_part('epoch', least("from", (p).day + INTERVAL '24 hours') - (p).day) / 60)
                    ELSE 1 END::int AS i,
               CASE WHEN (p).minute_ IS NULL AND "to" < (p).day + INTERVAL '24 hours'
                    THEN ceil(date_part('epoch', greatest("to", (p).day) - (p).day) / 60)
                    ELSE (p).rows END::int AS j
        OFFSET 0
    ) AS w
    CROSS JOIN LATERAL (
        SELECT generate_series(w.i - 1, w.j - 1) AS place, unnest((p).minute_) AS minute_,
               unnest((p).n_[w.i:w.j]) AS n_, unnest((p).n_good_[w.i:w.j]) AS n_good_,
               unnest((p).known_[w.i:w.j]) AS known_, unnest((p).first_at_[w.i:w.j]) AS first_at_,
               unnest((p).last_at_[w.i:w.j]) AS last_at_, unnest((p).holds_[w.i:w.j]) AS holds_,
               unnest(plant.unpack_numbers((p).min, w.i, w.j)) AS min,
               unnest(plant.unpack_numbers((p).max, w.i, w.j)) AS max,
               unnest(plant.unpack_numbers((p).sum, w.i, w.j)) AS sum,
               unnest(plant.unpack_numbers((p).area, w.i, w.j)) AS area,
               unnest(plant.unpack_numbers((p).first, w.i, w.j)) AS first,
               unnest(plant.unpack_numbers((p).last, w.i, w.j)) AS last
    ) AS u
    CROSS JOIN LATERAL (
        SELECT (p).day + INTERVAL '1 minute' * coalesce(u.minute_, u.place) AS bucket,
               coalesce(u.n_good_, (p).n_good) AS n_good
    ) AS b
    WHERE b.bucket >= "from" AND b.bucket < "to";
END;
