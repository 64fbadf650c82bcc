-- The chunks of a table.
CREATE OR REPLACE FUNCTION plant.chunks_of(relation regclass)
RETURNS TABLE (chunk regclass, from_time timestamptz, to_time timestamptz, bytes bigint)
LANGUAGE sql STABLE
SET search_path = pg_catalog
AS $$ -- not BEGIN ATOMIC, which would create a dependency: updates of TimescaleDB recreate its views
SELECT format('%I.%I', k.chunk_schema, k.chunk_name)::regclass, k.range_start, k.range_end, d.total_bytes
FROM pg_class AS c
JOIN timescaledb_information.chunks AS k
    ON k.hypertable_name = c.relname AND k.hypertable_schema = c.relnamespace::regnamespace::name
JOIN public.chunks_detailed_size(relation) AS d ON d.chunk_schema = k.chunk_schema AND d.chunk_name = k.chunk_name
WHERE c.oid = relation
$$;
