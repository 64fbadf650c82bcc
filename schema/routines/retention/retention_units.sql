-- Existing data of a kind in droppable units, oldest first: chunks, or days of a table without chunks. bytes: the whole
-- chunk (with indexes, TOAST and columnstore), or the day's share of the table.
CREATE OR REPLACE FUNCTION plant.retention_units(what text)
RETURNS TABLE (relation regclass, column_name name, chunk regclass, from_time timestamptz, to_time timestamptz,
               bytes bigint)
LANGUAGE sql STABLE
SET search_path = pg_catalog
AS $$
WITH
tables AS MATERIALIZED (
    SELECT r.relation, r.column_name, h.hypertable_name IS NOT NULL AS chunked
    FROM plant.retention_tables(what) AS r
    JOIN pg_class AS c ON c.oid = r.relation
    LEFT JOIN timescaledb_information.hypertables AS h
        ON h.hypertable_schema = c.relnamespace::regnamespace::name AND h.hypertable_name = c.relname
),
chunks AS (
    SELECT t.relation, t.column_name, k.chunk, k.from_time, k.to_time, k.bytes
    FROM tables AS t
    CROSS JOIN LATERAL plant.chunks_of(t.relation) AS k
    WHERE t.chunked
),
lengths AS (
    SELECT t.relation, t.column_name,
           date_trunc('day', plant.oldest_time(t.relation, t.column_name), 'UTC') AS first_day,
           pg_total_relation_size(t.relation) AS bytes
    FROM tables AS t
    WHERE NOT t.chunked
),
days AS (
    SELECT l.relation, l.column_name, NULL::regclass, d.day, d.day + INTERVAL '24 hours',
           (l.bytes / count(*) OVER (PARTITION BY l.relation))::bigint
    FROM lengths AS l
    CROSS JOIN LATERAL generate_series(l.first_day, now(), INTERVAL '24 hours') AS d (day)
)
SELECT u.* FROM (SELECT * FROM chunks UNION ALL SELECT * FROM days) AS u ORDER BY u.from_time, u.relation::text
$$;
