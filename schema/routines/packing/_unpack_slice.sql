-- Samples i to j, counted from 1, of one row of samples_packed. The function is inlined if called in FROM. The branches
-- save time: for a day of jittered times by the minute, reading t1 to t3 and v2 to v3 where they are NULL, and interval
-- arithmetic, were 27 % of the cost.
CREATE OR REPLACE FUNCTION plant._unpack_slice(p plant.samples_packed, i int, j int)
RETURNS TABLE ("time" timestamptz, value float8, status int)
LANGUAGE sql STABLE PARALLEL SAFE ROWS 3600
BEGIN ATOMIC
    SELECT CASE WHEN (p).t0 IS NULL THEN u.line
                -- to_timestamp restores whole µs of the years 1698 to 2242 exactly: the rounding error of a double is
                -- less than half a µs.
                WHEN (p).t1 IS NULL THEN to_timestamp((u.us::float8 + (p).unit * u.t0::int) / 1e6)
                ELSE to_timestamp((u.us + (p).unit * (u.t0::int + 256 * u.t1::int + coalesce(65536 * u.t2::int, 0)
                                                      + coalesce(16777216 * u.t3::int::float8, 0))) / 1e6) END,
           coalesce(u.float8s, u.float4s,
                    CASE WHEN (p).single THEN (((p).base + coalesce(u.v0::int, 0) + coalesce(256 * u.v1::int, 0))
                                               / (p).divisor)::float4::float8
                         WHEN (p).v1 IS NULL THEN ((p).base + coalesce(u.v0::int, 0)) / (p).divisor
                         WHEN (p).v2 IS NULL THEN ((p).base + u.v0::int + 256 * u.v1::int) / (p).divisor
                         ELSE ((p).base + u.v0::int + 256 * u.v1::int + coalesce(65536 * u.v2::int, 0)
                               + coalesce(16777216 * u.v3::int::float8, 0)) / (p).divisor END),
           coalesce(u.statuses, (p).status)
    FROM (
        -- All columns advance together, one sample per row. A NULL one gives NULLs: us without t0, line with it.
        SELECT generate_series(CASE WHEN (p).t0 IS NULL
                                    THEN (p).start + INTERVAL '1 microsecond' * ((p).step * (i - 1)) END,
                               (p).start + INTERVAL '1 microsecond' * ((p).step * (j - 1)),
                               INTERVAL '1 microsecond' * (p).step) AS line,
               generate_series(CASE WHEN (p).t0 IS NOT NULL
                                    THEN (date_part('epoch', (p).start) * 1e6)::bigint + (i - 1) * (p).step END,
                               (date_part('epoch', (p).start) * 1e6)::bigint + (j - 1) * (p).step,
                               (p).step) AS us,
               unnest((p).t0[i:j]) AS t0, unnest((p).t1[i:j]) AS t1,
               unnest((p).t2[i:j]) AS t2, unnest((p).t3[i:j]) AS t3,
               unnest((p).v0[i:j]) AS v0, unnest((p).v1[i:j]) AS v1,
               unnest((p).v2[i:j]) AS v2, unnest((p).v3[i:j]) AS v3,
               unnest((p).float4s[i:j]) AS float4s, unnest((p).float8s[i:j]) AS float8s,
               unnest((p).statuses[i:j]) AS statuses
    ) AS u;
END;
