-- The number, counted from 1, of the first sample of a packed hour that is not before a time; n + 1: none is. Only those
-- of which the line does not say it for certain are looked at.
CREATE OR REPLACE FUNCTION plant._sample_from(p plant.samples_packed, at timestamptz) RETURNS int
LANGUAGE plpgsql STABLE PARALLEL SAFE
SET search_path = pg_catalog
AS $$
DECLARE
    -- How far t takes a time from its line, and how far the line begins before the time, µs.
    reach  float8 := CASE WHEN p.t0 IS NULL THEN 0 WHEN p.t1 IS NULL THEN 128 WHEN p.t2 IS NULL THEN 32896
                          ELSE 2155905152 END::float8 * p.unit;
    behind float8 := round(date_part('epoch', at - p.start) * 1e6);
    before int    := greatest(0, least(p.n, ceil((behind - reach) / p.step))); -- for certain
    most   int    := greatest(0, least(p.n, ceil((behind + reach) / p.step)));
BEGIN
    IF before < most THEN
        before := before + (SELECT count(*) FROM plant._unpack_slice(p, before + 1, most) AS u WHERE u.time < at);
    END IF;
    RETURN before + 1;
END
$$;
