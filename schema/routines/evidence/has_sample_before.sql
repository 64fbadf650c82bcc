-- A separate function, so that its query is planned with the actual time.
CREATE OR REPLACE FUNCTION plant.has_sample_before(channel int, before timestamptz) RETURNS boolean
LANGUAGE sql STABLE
SET search_path = pg_catalog
AS $$
SELECT EXISTS (SELECT FROM plant.last_before(channel, TIMESTAMPTZ '1970-01-01 00:00:00+00', before))
$$;
COMMENT ON FUNCTION plant.has_sample_before IS 'Whether a channel has any sample before a time.';
GRANT EXECUTE ON FUNCTION plant.has_sample_before TO plant_reader, plant_ingest, plant_owner;
