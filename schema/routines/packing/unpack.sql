-- The samples of one row of samples_packed with from <= time < to; only those are decoded. An hour that lies within the
-- bounds, as nearly all do, is not searched for them.
CREATE OR REPLACE FUNCTION plant.unpack(p plant.samples_packed, "from" timestamptz, "to" timestamptz)
RETURNS TABLE ("time" timestamptz, value float8, status int)
LANGUAGE sql STABLE PARALLEL SAFE ROWS 3600
BEGIN ATOMIC
    SELECT u.time, u.value, u.status
    FROM (SELECT CASE WHEN (p).hour >= "from" THEN 1 ELSE plant._sample_from(p, "from") END AS i,
                 CASE WHEN (p).hour + INTERVAL '1 hour' <= "to" THEN (p).n
                      ELSE plant._sample_from(p, "to") - 1 END AS j
          OFFSET 0) AS w
    CROSS JOIN LATERAL plant._unpack_slice(p, w.i, w.j) AS u;
END;

-- All samples.
CREATE OR REPLACE FUNCTION plant.unpack(p plant.samples_packed)
RETURNS TABLE ("time" timestamptz, value float8, status int)
LANGUAGE sql STABLE PARALLEL SAFE ROWS 3600
BEGIN ATOMIC
    SELECT u.time, u.value, u.status FROM plant.unpack(p, '-infinity', 'infinity') AS u;
END;
