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
