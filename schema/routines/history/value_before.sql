-- The last sample before a time whose quality is at worst the given one (good, uncertain, bad); an error if retention dropped
-- samples that may be nearer.
CREATE OR REPLACE FUNCTION plant.value_before(channel int, at timestamptz, worst text DEFAULT 'bad',
                                              within interval DEFAULT '24 hours')
RETURNS TABLE ("time" timestamptz, value float8, status int)
LANGUAGE plpgsql STABLE ROWS 1
SET search_path = pg_catalog
AS $$
DECLARE
    found record;
BEGIN
    SELECT b.time, b.value, b.status INTO found FROM plant._nearest_value(channel, at, false, worst, within) AS b;
    PERFORM plant._require_samples(channel, coalesce(found.time, at - within), at);
    RETURN QUERY SELECT found.time, found.value, found.status WHERE found.time IS NOT NULL;
END
$$;
COMMENT ON FUNCTION plant.value_before IS 'The last sample before a time: at - within <= time < at, of a quality that is at worst the given one (good, uncertain, bad).';
