-- The first sample after a time whose quality is at worst the given one (good, uncertain, bad); an error if retention dropped
-- samples that may be nearer.
CREATE OR REPLACE FUNCTION plant.value_after(channel int, at timestamptz, worst text DEFAULT 'bad',
                                              within interval DEFAULT '24 hours')
RETURNS TABLE ("time" timestamptz, value float8, status int)
LANGUAGE plpgsql STABLE ROWS 1
SET search_path = pg_catalog
AS $$
DECLARE
    found record;
BEGIN
    SELECT b.time, b.value, b.status INTO found FROM plant._nearest_value(channel, at, true, worst, within) AS b;
    PERFORM plant._require_samples(channel, at, coalesce(found.time, at + within));
    RETURN QUERY SELECT found.time, found.value, found.status WHERE found.time IS NOT NULL;
END
$$;
COMMENT ON FUNCTION plant.value_after IS 'The first sample after a time: at < time <= at + within, of a quality that is at worst the given one (good, uncertain, bad).';
