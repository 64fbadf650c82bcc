-- The packed numbers from place i to place j, from 1. Compressed data is decompressed once for all of them.
CREATE OR REPLACE FUNCTION plant.unpack_numbers(p plant.packed_numbers, i int, j int) RETURNS float8[]
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT ARRAY(
        SELECT coalesce(u.float8s, u.float4s,
                        CASE WHEN h.single THEN ((h.base + coalesce(u.v0::int, 0) + coalesce(256 * u.v1::int, 0))
                                                 / h.divisor)::float4::float8
                             WHEN h.narrow THEN (h.base + coalesce(u.v0::int, 0)) / h.divisor
                             ELSE (h.base + u.v0::int + 256 * u.v1::int + coalesce(65536 * u.v2::int, 0)
                                   + coalesce(16777216 * u.v3::int::float8, 0)) / h.divisor END)
        FROM (SELECT (p).base AS base, (p).divisor AS divisor, (p).single AS single,
                     (p).v1 IS NULL AS narrow OFFSET 0) AS h
        CROSS JOIN LATERAL (
            SELECT generate_series(i, j), unnest((p).v0[i:j]) AS v0, unnest((p).v1[i:j]) AS v1,
                   unnest((p).v2[i:j]) AS v2, unnest((p).v3[i:j]) AS v3,
                   unnest((p).float4s[i:j]) AS float4s, unnest((p).float8s[i:j]) AS float8s
        ) AS u);
END;
