-- `plantlog lab bench`, except `day`. Benchmarks put channels and times in braces.

-- name: insert_channels
-- A source and $1 channels for generated rows.
WITH source AS (
    INSERT INTO plant.source (name, kind, address) VALUES ('bench', 'push', 'bench')
    ON CONFLICT (name) DO UPDATE SET kind = excluded.kind
    RETURNING id
)
INSERT INTO plant.channel (name, source_id, address, kind, unit)
SELECT 'bench/c' || lpad(n::text, 6, '0'), source.id, n::text, 'analog', ''
FROM source, generate_series(1, $1::int) AS n
ON CONFLICT (name) DO NOTHING;

-- name: select_channels
SELECT c.id, c.source_id FROM plant.channel AS c WHERE c.name LIKE 'bench/c%' ORDER BY c.id;

-- name: create_reference_table
-- A hypertable equal to samples_raw, for plain COPY.
CREATE TABLE IF NOT EXISTS plant.bench_reference (LIKE plant.samples_raw INCLUDING ALL);
SELECT public.create_hypertable('plant.bench_reference', public.by_range('time', INTERVAL '1 day'),
                                create_default_indexes => false, if_not_exists => true);

-- name: truncate_samples
TRUNCATE plant.bench_reference, plant.samples_raw, plant.ingest_batch;

-- name: count_samples
SELECT (SELECT count(*) FROM plant.samples_raw) AS written, (SELECT count(*) FROM plant.bench_reference) AS copied;

-- name: vacuum_samples
-- As autovacuum would.
VACUUM (ANALYZE) plant.samples_raw, plant.samples_packed;

-- name: select_lag
-- Lag from sample to commit, in seconds: p50 and p99 of the oldest and of the newest sample of each batch, weighted by
-- rows; with the number of rows and of transactions. $1 from, $2 to: written_at.
WITH batch AS (
    SELECT b.rows, b.xmin,
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
    SELECT coalesce(sum(b.rows), 0) AS rows, count(DISTINCT b.xmin::text) AS groups FROM batch AS b
)
SELECT total.rows::int8                                                                          AS rows,
       total.groups::int8                                                                        AS groups,
       min(r.lag) FILTER (WHERE r.which = 'oldest' AND r.upto >= 0.50 * total.rows)::float8      AS oldest_p50,
       min(r.lag) FILTER (WHERE r.which = 'oldest' AND r.upto >= 0.99 * total.rows)::float8      AS oldest_p99,
       min(r.lag) FILTER (WHERE r.which = 'newest' AND r.upto >= 0.50 * total.rows)::float8      AS newest_p50,
       min(r.lag) FILTER (WHERE r.which = 'newest' AND r.upto >= 0.99 * total.rows)::float8      AS newest_p99
FROM total LEFT JOIN ranked AS r ON true
GROUP BY total.rows, total.groups;

-- name: count_gaps_since
-- By reason, from $1 on: rows of plant.gap, and distinct gaps: rows of one source and time are one gap.
SELECT g.reason, count(*) AS rows, count(DISTINCT (g.source_id, g.from_time, g.to_time)) AS gaps
FROM plant.gap AS g
WHERE g.opened_at >= $1
GROUP BY g.reason
ORDER BY 2 DESC;

-- name: select_flood_totals
-- What the flooding gateways pushed since $1: bodies, each by the value of its first line, and samples.
SELECT (SELECT coalesce(array_agg(r.value), '{}')
        FROM plant.samples_raw AS r
        JOIN plant.channel AS c ON c.id = r.channel_id
        WHERE c.name LIKE 'flood%/c0000.value' AND r.time >= $1) AS bodies,
       (SELECT coalesce(sum(b.rows), 0)
        FROM plant.ingest_batch AS b
        JOIN plant.source AS s ON s.id = b.source_id
        WHERE s.name LIKE 'flood%' AND b.kind = 'samples' AND b.received_at >= $1)::int8 AS samples;

-- name: select_footprint
-- Bytes of all samples with indexes and TOAST, and their number.
SELECT (SELECT sum(s.bytes) FROM plant.storage() AS s WHERE s.relation LIKE 'samples%')::int8       AS bytes,
       (SELECT sum(b.rows) FROM plant.ingest_batch AS b WHERE b.kind = 'samples')::int8              AS rows;

-- name: select_sessions
-- Server processes by application name, else by type.
SELECT a.pid, coalesce(nullif(a.application_name, ''), a.backend_type) AS name FROM pg_catalog.pg_stat_activity AS a;

-- name: insert_installation
-- The installation $1, which seals and archives, and has all sources.
WITH installation AS (
    INSERT INTO plant.installation (id, plant, class_prefix, number, sealing, archive_from)
    VALUES ($1, 'bench', '', 1, true, '-infinity')
    RETURNING id
)
UPDATE plant.source AS s SET installation_id = i.id FROM installation AS i;

-- name: select_packed_bytes
-- Bytes of the packed hours of day $1, with indexes and TOAST.
SELECT s.bytes FROM plant.storage() AS s WHERE s.relation = 'samples_packed' AND s.day = $1::timestamptz;

-- name: drop_samples
-- As retention does: the samples from $1 to before $2.
SELECT s.action
FROM plant.retention_units('raw') AS u
CROSS JOIN LATERAL plant.drop_slice('raw', u.relation, u.from_time, u.to_time, NULL, 'age', false) AS s
WHERE u.from_time >= $1::timestamptz AND u.to_time <= $2::timestamptz;

-- name: query_minutes
-- For PostgreSQL with plant in the search path and for DuckDB, as the two behind it; {samples}: what each reads a time
-- range by. One row, for which all columns are computed.
SELECT count(*) AS minutes, sum(m.low) AS low, sum(m.high) AS high, sum(m.mean) AS mean
FROM (
    SELECT s.channel_id, minute_of(s.time) AS minute, min(s.value) AS low, max(s.value) AS high, avg(s.value) AS mean
    FROM {samples} AS s
    WHERE s.status >= 0
    GROUP BY s.channel_id, minute_of(s.time)
) AS m;

-- name: query_deviations
SELECT count(*) AS channels, sum(d.mean) AS mean, sum(d.deviation) AS deviation
FROM (
    SELECT s.channel_id, avg(s.value) AS mean, stddev_pop(s.value) AS deviation
    FROM {samples} AS s
    WHERE s.status >= 0
    GROUP BY s.channel_id
) AS d;

-- name: query_runs
-- How often values change.
SELECT count(*) AS changes
FROM (
    SELECT s.value, lag(s.value) OVER (PARTITION BY s.channel_id ORDER BY s.time) AS old
    FROM {samples} AS s
) AS r
WHERE r.value IS DISTINCT FROM r.old;

-- name: insert_generated_channels
-- Channels that are polled each second since long before: names $1, sources $2, kinds $3 and units $4 (text[]). Returns
-- ids and names.
WITH
channel AS (
    SELECT u.*
    FROM unnest($1::text[], $2::text[], $3::text[], $4::text[]) WITH ORDINALITY AS u (name, source, kind, unit, ordinal)
),
source AS (
    INSERT INTO plant.source (name, kind, address)
    SELECT DISTINCT c.source, 'modbus', c.source FROM channel AS c
    RETURNING id, name
)
INSERT INTO plant.channel (name, source_id, address, kind, unit, range_lo, range_hi, attributes, configured_at)
SELECT c.name, s.id, c.ordinal::text, c.kind, c.unit, 0, 100, '{"expected_interval": 1}', '2026-01-01T00:00Z'
FROM channel AS c
JOIN source AS s ON s.name = c.source
ORDER BY c.ordinal
RETURNING id, name;

-- name: insert_generated_gaps
-- A gap of each of the sources $1 (text[]) from $2 to $3.
INSERT INTO plant.gap (source_id, from_time, to_time, reason)
SELECT s.id, $2, $3, 'disconnected' FROM plant.source AS s WHERE s.name = ANY ($1::text[]);

-- name: insert_generated_events
-- An event of each of the sources $1 (text[]) at each hour from $2 to before $3.
INSERT INTO plant.event (time, id, type, source_id, text)
SELECT h.time, s.id, 'text', s.id, 'batch finished'
FROM plant.source AS s
CROSS JOIN generate_series($2::timestamptz, $3::timestamptz - INTERVAL '1 hour', INTERVAL '1 hour') AS h (time)
WHERE s.name = ANY ($1::text[]);

-- name: release_days
-- As if retention had dropped from the database what is archived, where it never was.
WITH released AS (
    UPDATE plant.archived_day AS a SET dropped_at = clock_timestamp() WHERE a.dropped_at IS NULL
)
DELETE FROM plant.archived_channel;

-- name: insert_recorded_channels
-- Channels of a recording: source $1, names $2 and kinds $3 (text[]), seconds between two samples $4, configured at $5.
-- Returns their ids in order.
WITH
channel AS (
    SELECT u.* FROM unnest($2::text[], $3::text[]) WITH ORDINALITY AS u (name, kind, ordinal)
),
source AS (
    INSERT INTO plant.source (name, kind, address) VALUES ($1, 'push', $1) RETURNING id
)
INSERT INTO plant.channel (name, source_id, address, kind, attributes, configured_at)
SELECT c.name, s.id, c.name, c.kind, jsonb_build_object('expected_interval', $4::float8), $5::timestamptz
FROM channel AS c
CROSS JOIN source AS s
ORDER BY c.ordinal
RETURNING id;
