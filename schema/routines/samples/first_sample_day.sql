-- Reads TimescaleDB's views through a function body, which creates no dependency: an update of the extension, which
-- also changes the edition, recreates these views.
CREATE OR REPLACE FUNCTION plant.first_sample_day() RETURNS timestamptz
LANGUAGE sql STABLE
SET search_path = pg_catalog
AS $$
SELECT min(k.range_start)
FROM timescaledb_information.chunks AS k
WHERE k.hypertable_schema = 'plant' AND k.hypertable_name IN ('samples_raw', 'samples_packed')
$$;
COMMENT ON FUNCTION plant.first_sample_day IS 'Start of the first chunk of samples. Reads no samples.';
