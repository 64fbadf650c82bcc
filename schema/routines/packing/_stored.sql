-- Relations in the schema plant that hold rows: chunks, with their start time, and plain tables. rows is the planner's
-- estimate: density at the last ANALYZE times the present number of pages; NULL: never analyzed. For packed hours it is
-- the number of samples, from the statistics of column n.
CREATE OR REPLACE FUNCTION plant._stored()
RETURNS TABLE (relation text, stored oid, day timestamptz, columnstored boolean, rows float8)
LANGUAGE sql STABLE
SET search_path = pg_catalog
SET jit = off
AS $$
WITH
chunk AS (
    SELECT k.hypertable_name AS relation, to_regclass(format('%I.%I', k.chunk_schema, k.chunk_name))::oid AS stored,
           k.range_start AS day, k.is_compressed AS columnstored
    FROM timescaledb_information.chunks AS k
    WHERE k.hypertable_schema = 'plant'
),
plain AS (
    SELECT c.relname AS relation, c.oid AS stored
    FROM pg_class AS c
    WHERE c.relnamespace = 'plant'::regnamespace AND c.relkind = 'r'
      AND c.relname NOT IN (SELECT h.hypertable_name FROM timescaledb_information.hypertables AS h
                            WHERE h.hypertable_schema = 'plant')
),
each AS (
    SELECT k.relation, k.stored, k.day, k.columnstored FROM chunk AS k
    UNION ALL
    SELECT p.relation, p.stored, NULL, false FROM plain AS p
),
-- Materialized: other tables have a column n as well, whose values are no numbers.
packed AS MATERIALIZED (
    SELECT to_regclass(format('%I.%I', s.schemaname, s.tablename))::oid AS stored, s.most_common_vals::text AS common,
           s.most_common_freqs AS shares, s.histogram_bounds::text AS bounds
    FROM pg_stats AS s
    WHERE s.attname = 'n' AND (s.schemaname, s.tablename) IN (
        SELECT k.chunk_schema, k.chunk_name FROM timescaledb_information.chunks AS k
        WHERE k.hypertable_schema = 'plant' AND k.hypertable_name = 'samples_packed')
),
-- Mean of n, from its most common values and its histogram, whose bins have equal numbers of rows.
mean AS (
    SELECT p.stored,
           coalesce((SELECT sum(f.n * f.share) FROM unnest(p.common::float8[], p.shares) AS f (n, share)), 0)
           + coalesce((SELECT avg(b.n) FROM unnest(p.bounds::float8[]) AS b (n))
                      * (1 - (SELECT coalesce(sum(f.share), 0) FROM unnest(p.shares) AS f (share))), 0) AS n
    FROM packed AS p
)
SELECT e.relation, e.stored, e.day, e.columnstored,
       CASE WHEN pg_relation_size(e.stored) = 0 THEN 0
            WHEN c.reltuples >= 0 AND c.relpages > 0
            THEN c.reltuples::float8 / c.relpages
                 * (pg_relation_size(e.stored) / current_setting('block_size')::int) END
       * CASE WHEN e.relation = 'samples_packed' THEN m.n ELSE 1 END
FROM each AS e
JOIN pg_class AS c ON c.oid = e.stored
LEFT JOIN mean AS m ON m.stored = e.stored
$$;
