-- Storage by relation and form, from the catalog and the list of archived days.
CREATE OR REPLACE FUNCTION plant.storage()
RETURNS TABLE (relation text, form text, day timestamptz, rows bigint, bytes bigint)
LANGUAGE sql STABLE
SET search_path = pg_catalog
SET jit = off
AS $$
SELECT s.relation, CASE s.relation WHEN 'samples_packed' THEN 'packed' ELSE 'rows' END, s.day, round(s.rows)::bigint,
       pg_total_relation_size(s.stored)
FROM plant._stored() AS s
UNION ALL
SELECT 'archive', 'parquet', a.day::timestamp AT TIME ZONE 'UTC', a.samples, a.bytes
FROM plant.archived_day AS a
ORDER BY relation, day
$$;
COMMENT ON FUNCTION plant.storage IS
    'Bytes (with indexes and TOAST) and estimated rows (packed and columnstore: samples; NULL: never analyzed) of '
    'each relation, by storage form and start of the chunk (NULL: not a hypertable). archive: Parquet files, which '
    'are not in the database. Reads only the catalog and plant.archived_day.';
