-- What `plantlog bench ingest` asks.

-- name: register
-- A source and $1 channels for rows that no plant sent.
WITH source AS (
    INSERT INTO plant.source (name, kind, address) VALUES ('bench', 'push', 'bench')
    ON CONFLICT (name) DO UPDATE SET kind = excluded.kind
    RETURNING id
)
INSERT INTO plant.channel (name, source_id, address, kind, unit)
SELECT 'bench/c' || lpad(n::text, 6, '0'), source.id, n::text, 'analog', ''
FROM source, generate_series(1, $1::int) AS n
ON CONFLICT (name) DO NOTHING;

-- name: channels
SELECT c.id, c.source_id FROM plant.channel AS c WHERE c.name LIKE 'bench/c%' ORDER BY c.id;

-- name: reference
-- A hypertable equal to samples_raw, for plain COPY.
CREATE TABLE IF NOT EXISTS plant.bench_reference (LIKE plant.samples_raw INCLUDING ALL);
SELECT public.create_hypertable('plant.bench_reference', public.by_range('time', INTERVAL '1 day'),
                                create_default_indexes => false, if_not_exists => true);

-- name: empty
TRUNCATE plant.bench_reference, plant.samples_raw, plant.ingest_batch;

-- name: counts
SELECT (SELECT count(*) FROM plant.samples_raw) AS written, (SELECT count(*) FROM plant.bench_reference) AS copied;

-- name: empty_forms
TRUNCATE plant.samples_raw, plant.samples_packed, plant.packed_channel, plant.packed_chunk;
UPDATE plant.packed_until SET until = '-infinity';

-- name: analyze_forms
-- As autovacuum leaves them.
VACUUM (ANALYZE) plant.samples_raw, plant.samples_packed;

-- name: edition
SELECT s.value FROM plant.setting AS s WHERE s.key = 'edition';

-- name: forms
-- Samples and bytes of each form, indexes and TOAST included. The one day of samples_raw is in one form.
WITH raw AS (
    SELECT count(*) AS samples,
           coalesce((SELECT bool_and(k.is_compressed) FROM timescaledb_information.chunks AS k
                     WHERE k.hypertable_schema = 'plant' AND k.hypertable_name = 'samples_raw'), false) AS columnstored
    FROM plant.samples_raw
)
SELECT CASE WHEN r.columnstored THEN 0 ELSE r.samples END             AS rows,
       CASE WHEN r.columnstored THEN r.samples ELSE 0 END             AS columnstore,
       (SELECT coalesce(sum(p.n), 0) FROM plant.samples_packed AS p)  AS packed,
       public.hypertable_size('plant.samples_raw')                    AS raw_bytes,
       public.hypertable_size('plant.samples_packed')                 AS packed_bytes
FROM raw AS r;

-- name: by_minute
-- {channel}, {first} and {last} are put in by the benchmark.
SELECT date_trunc('minute', s.time) AS minute, avg(s.value) AS mean
FROM plant.samples_between(ARRAY[{channel}], '{first}', '{last}') AS s
GROUP BY 1
ORDER BY 1;

-- name: lag
-- From a batch's oldest sample to its commit: what the worst-off sample of each batch waited, weighted by rows.
-- $1 from, $2 to: written_at. Returns rows, p50 and p99 in seconds of the oldest and of the newest sample.
WITH batch AS (
    SELECT b.rows,
           extract(epoch FROM b.written_at - b.first_time) AS oldest,
           extract(epoch FROM b.written_at - b.last_time)  AS newest
    FROM plant.ingest_batch AS b
    WHERE b.kind = 'samples' AND b.written_at >= $1 AND b.written_at < $2
),
ranked AS (
    SELECT 'oldest' AS which, b.oldest AS lag, sum(b.rows) OVER (ORDER BY b.oldest, b.rows) AS upto FROM batch AS b
    UNION ALL
    SELECT 'newest', b.newest, sum(b.rows) OVER (ORDER BY b.newest, b.rows) FROM batch AS b
),
total AS (
    SELECT coalesce(sum(b.rows), 0) AS rows FROM batch AS b
)
SELECT total.rows::int8                                                                          AS rows,
       min(r.lag) FILTER (WHERE r.which = 'oldest' AND r.upto >= 0.50 * total.rows)::float8      AS oldest_p50,
       min(r.lag) FILTER (WHERE r.which = 'oldest' AND r.upto >= 0.99 * total.rows)::float8      AS oldest_p99,
       min(r.lag) FILTER (WHERE r.which = 'newest' AND r.upto >= 0.50 * total.rows)::float8      AS newest_p50,
       min(r.lag) FILTER (WHERE r.which = 'newest' AND r.upto >= 0.99 * total.rows)::float8      AS newest_p99
FROM total LEFT JOIN ranked AS r ON true
GROUP BY total.rows;
