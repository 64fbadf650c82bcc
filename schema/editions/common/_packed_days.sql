-- The UTC days of which hours are packed, from the catalog: whoever has an older view sees older days. Queries ask it
-- once, and only where rows of samples_raw lie before plant.packed_until, as late rows and columnstored days do.
CREATE OR REPLACE FUNCTION plant._packed_days() RETURNS SETOF timestamptz
LANGUAGE sql STABLE PARALLEL SAFE
SET search_path = pg_catalog
AS $$
SELECT generate_series(k.range_start, k.range_end - INTERVAL '1 day', INTERVAL '1 day', 'UTC')
FROM timescaledb_information.chunks AS k
WHERE k.hypertable_schema = 'plant' AND k.hypertable_name = 'samples_packed'
$$;
