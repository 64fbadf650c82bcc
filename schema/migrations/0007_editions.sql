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

-- The bounds as whole µs: 0.000253 s * 1e6 is a little more than 253, and took in or left out a sample that lay on them.
CREATE OR REPLACE FUNCTION plant.unpack(p plant.samples_packed, "from" timestamptz, "to" timestamptz)
RETURNS TABLE ("time" timestamptz, value float8, status int)
LANGUAGE sql STABLE PARALLEL SAFE ROWS 3600
BEGIN ATOMIC
    SELECT CASE WHEN (p).t0 IS NULL THEN u.line
                ELSE u.line + INTERVAL '1 microsecond' * ((p).unit * (
                    u.t0::int + coalesce(256 * u.t1::int, 0) + coalesce(65536 * u.t2::int, 0)
                    + coalesce(16777216 * u.t3::int::float8, 0))) END,
           coalesce(u.float8s, u.float4s,
                    CASE WHEN (p).single THEN (((p).base + coalesce(u.v0::int, 0) + coalesce(256 * u.v1::int, 0))
                                               / (p).divisor)::float4::float8
                         WHEN (p).v1 IS NULL THEN ((p).base + coalesce(u.v0::int, 0)) / (p).divisor
                         ELSE ((p).base + u.v0::int + 256 * u.v1::int + coalesce(65536 * u.v2::int, 0)
                               + coalesce(16777216 * u.v3::int::float8, 0)) / (p).divisor END),
           coalesce(u.statuses, (p).status)
    FROM (
        -- The first and the last sample, counted from 1. reach: how far t takes a time from its line, in units.
        SELECT greatest(1, 1 + ceil((round(date_part('epoch', "from" - (p).start) * 1e6) - r.reach * (p).unit)
                                    / (p).step))::int
                   AS i,
               least((p).n, ceil((round(date_part('epoch', "to" - (p).start) * 1e6) + r.reach * (p).unit)
                                 / (p).step))::int AS j
        FROM (SELECT CASE WHEN (p).t0 IS NULL THEN 0 WHEN (p).t1 IS NULL THEN 128 WHEN (p).t2 IS NULL THEN 32896
                          ELSE 2155905152 END::float8 AS reach) AS r
        OFFSET 0
    ) AS w
    CROSS JOIN LATERAL (
        -- All go in step, one sample at a time; one that is NULL gives NULLs.
        SELECT generate_series((p).start + INTERVAL '1 microsecond' * ((p).step * (w.i - 1)),
                               (p).start + INTERVAL '1 microsecond' * ((p).step * (w.j - 1)),
                               INTERVAL '1 microsecond' * (p).step) AS line,
               unnest((p).t0[w.i:w.j]) AS t0, unnest((p).t1[w.i:w.j]) AS t1,
               unnest((p).t2[w.i:w.j]) AS t2, unnest((p).t3[w.i:w.j]) AS t3,
               unnest((p).v0[w.i:w.j]) AS v0, unnest((p).v1[w.i:w.j]) AS v1,
               unnest((p).v2[w.i:w.j]) AS v2, unnest((p).v3[w.i:w.j]) AS v3,
               unnest((p).float4s[w.i:w.j]) AS float4s, unnest((p).float8s[w.i:w.j]) AS float8s,
               unnest((p).statuses[w.i:w.j]) AS statuses
    ) AS u;
END;
