-- The UTC days that have packed hours, from the catalog, as of the query's snapshot. Queries call it once, and only if
-- samples_raw has rows before plant.packed_until: late rows and columnstored days.
CREATE OR REPLACE FUNCTION plant._packed_days() RETURNS SETOF timestamptz
LANGUAGE sql STABLE PARALLEL SAFE
SET search_path = pg_catalog
AS $$
SELECT generate_series(k.range_start, k.range_end - INTERVAL '1 day', INTERVAL '1 day', 'UTC')
FROM timescaledb_information.chunks AS k
WHERE k.hypertable_schema = 'plant' AND k.hypertable_name = 'samples_packed'
$$;
