-- What the two editions of TimescaleDB do differently stands in schema/editions; here is what they share.

-- compress_before of schema/editions chooses the form; this is the one that packs.
ALTER PROCEDURE plant.compress_before(timestamptz) RENAME TO pack_before;

-- A day of packed hours a chunk, as of rows: what a day takes is known without reading it, and it goes as a whole.
SELECT public.set_chunk_time_interval('plant.samples_packed', INTERVAL '1 day');

-- Columnstored chunks whose late rows were merged, and when: they count as partly columnstored until nobody can have an
-- older view of them (schema/editions/community/_columnstore_chunk.sql).
CREATE TABLE plant.columnstore_merged (
    chunk  text PRIMARY KEY,
    merged xid8 NOT NULL
);
GRANT ALL ON plant.columnstore_merged TO plant_owner;

-- No view or function of ours may depend on one of TimescaleDB's: its update, by which a database moves to the other
-- edition, makes them anew. Text of functions is no dependence.
CREATE FUNCTION plant.first_sample_day() RETURNS timestamptz
LANGUAGE sql STABLE
SET search_path = pg_catalog
AS $$
SELECT min(k.range_start)
FROM timescaledb_information.chunks AS k
WHERE k.hypertable_schema = 'plant' AND k.hypertable_name IN ('samples_raw', 'samples_packed')
$$;
COMMENT ON FUNCTION plant.first_sample_day IS 'When the first chunk of samples begins: known without reading samples.';

CREATE OR REPLACE VIEW plant.coverage AS
WITH
-- From the first chunk or the first gap on.
days AS (
    SELECT generate_series(
               date_trunc('day', least(plant.first_sample_day(), (SELECT min(g.from_time) FROM plant.gap AS g)), 'UTC'),
               now(), INTERVAL '1 day') AS day
)
SELECT d.day, o.*
FROM days AS d
CROSS JOIN LATERAL plant.coverage_of(d.day) AS o;
