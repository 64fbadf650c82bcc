-- The number (from 1) of the first sample of a packed hour at or after a time; n + 1 if there is none. Only samples
-- near the time, by start and step, are decoded.
CREATE OR REPLACE FUNCTION plant._sample_from(p plant.samples_packed, at timestamptz) RETURNS int
LANGUAGE plpgsql STABLE PARALLEL SAFE
SET search_path = pg_catalog
AS $$
DECLARE
    -- Largest distance of a time from start + i * step, and distance from start to the time; µs.
    reach  float8 := CASE WHEN p.t0 IS NULL THEN 0 WHEN p.t1 IS NULL THEN 128 WHEN p.t2 IS NULL THEN 32896
                          ELSE 2155905152 END::float8 * p.unit;
    behind float8 := round(date_part('epoch', at - p.start) * 1e6);
    before int    := greatest(0, least(p.n, ceil((behind - reach) / p.step))); -- at least
    most   int    := greatest(0, least(p.n, ceil((behind + reach) / p.step)));
BEGIN
    IF before < most THEN
        before := before + (SELECT count(*) FROM plant._unpack_slice(p, before + 1, most) AS u WHERE u.time < at);
    END IF;
    RETURN before + 1;
END
$$;
