-- Community: otherwise as storage.apache.sql. A columnstored day with late rows is listed in both forms.
CREATE OR REPLACE FUNCTION plant.storage()
RETURNS TABLE (relation text, form text, day timestamptz, rows bigint, bytes bigint)
LANGUAGE sql STABLE
SET search_path = pg_catalog
SET jit = off
AS $$
WITH
stored AS MATERIALIZED (
    SELECT s.relation, s.stored, s.day, s.columnstored, s.rows, pg_total_relation_size(s.stored) AS bytes
    FROM plant._stored() AS s
),
-- Bytes of both parts of each columnstored chunk, and the number of samples at its first conversion.
columnstored AS (
    SELECT s.stored, d.total_bytes AS bytes, z.numrows_pre_compression AS rows
    FROM (SELECT DISTINCT s.relation FROM stored AS s WHERE s.columnstored) AS h
    CROSS JOIN LATERAL public.chunks_detailed_size(format('plant.%I', h.relation)::regclass) AS d
    JOIN stored AS s ON s.stored = to_regclass(format('%I.%I', d.chunk_schema, d.chunk_name)) AND s.columnstored
    LEFT JOIN _timescaledb_catalog.compression_chunk_size AS z
        ON z.chunk_id = _timescaledb_functions.chunk_id_from_relid(s.stored)
)
SELECT f.relation, f.form, f.day, f.rows, f.bytes
FROM (
    SELECT s.relation, CASE s.relation WHEN 'samples_packed' THEN 'packed' ELSE 'rows' END AS form, s.day,
           round(s.rows)::bigint AS rows, s.bytes
    FROM stored AS s
    WHERE NOT s.columnstored OR pg_relation_size(s.stored) > 0
    UNION ALL
    SELECT s.relation, 'columnstore', s.day, c.rows,
           c.bytes - CASE WHEN pg_relation_size(s.stored) > 0 THEN s.bytes ELSE 0 END
    FROM stored AS s
    JOIN columnstored AS c ON c.stored = s.stored
    UNION ALL
    SELECT 'archive', 'parquet', a.day::timestamp AT TIME ZONE 'UTC', a.samples, a.bytes
    FROM plant.archived_day AS a
) AS f
ORDER BY f.relation, f.day, f.form
$$;
COMMENT ON FUNCTION plant.storage IS
    'Bytes (with indexes and TOAST) and estimated rows (packed and columnstore: samples; NULL: never analyzed) of '
    'each relation, by storage form and start of the chunk (NULL: not a hypertable). archive: Parquet files, which '
    'are not in the database. Reads only the catalog and plant.archived_day.';
