-- A separate function, so that its query is planned with the actual times.
CREATE OR REPLACE FUNCTION plant.first_sample(channel int, since timestamptz, until timestamptz) RETURNS timestamptz
LANGUAGE sql STABLE
SET search_path = pg_catalog
AS $$
SELECT min(s.time) FROM plant.samples_between(ARRAY[channel], since, until) AS s
$$;
COMMENT ON FUNCTION plant.first_sample IS
    'Time of the first sample of a channel with since <= time < until; NULL if there is none.';
GRANT EXECUTE ON FUNCTION plant.first_sample TO plant_reader, plant_ingest, plant_owner;
