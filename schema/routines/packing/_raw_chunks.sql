-- The chunks of samples_raw that begin before t, oldest first: their days, whether they are columnstored, and whether
-- these days have packed hours. Reads only the catalog and the chunks of packed days.
CREATE OR REPLACE FUNCTION plant._raw_chunks(t timestamptz)
RETURNS TABLE (chunk text, from_time timestamptz, to_time timestamptz, columnstored boolean, packed boolean)
LANGUAGE sql STABLE
SET search_path = pg_catalog
AS $$
SELECT format('%I.%I', k.chunk_schema, k.chunk_name), k.range_start, k.range_end, k.is_compressed,
       EXISTS (SELECT FROM timescaledb_information.chunks AS p
               WHERE p.hypertable_schema = 'plant' AND p.hypertable_name = 'samples_packed'
                 AND p.range_start < k.range_end AND p.range_end > k.range_start)
FROM timescaledb_information.chunks AS k
WHERE k.hypertable_schema = 'plant' AND k.hypertable_name = 'samples_raw' AND k.range_start < t
ORDER BY k.range_start
$$;
