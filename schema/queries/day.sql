-- `plantlog lab bench day`, as the owner of its own database.

-- name: select_channel_ranges
-- First and last channel id of each source.
SELECT c.source_id, min(c.id) AS first, max(c.id) AS last FROM plant.channel AS c GROUP BY c.source_id;

-- name: update_lateness
-- Allows data to be $1 seconds late.
UPDATE plant.setting AS s SET value = $1::text WHERE s.key = 'lateness';

-- name: select_packed_until
-- The time before which all samples are packed; NULL: fewer than $1 channels have packed samples.
SELECT CASE WHEN count(*) >= $1 THEN min(c.until) END FROM plant.packed_channel AS c;

-- name: create_pageinspect
CREATE EXTENSION IF NOT EXISTS pageinspect WITH SCHEMA public;

-- name: select_figures
-- Bytes, rows and states now. key_levels: of the largest index, from its root to its leaves.
WITH
chunk AS (
    SELECT format('%I.%I', k.chunk_schema, k.chunk_name)::regclass AS relation, k.hypertable_name AS of
    FROM timescaledb_information.chunks AS k
    WHERE k.hypertable_schema = 'plant'
),
raw AS (
    SELECT sum(pg_table_size(c.relation)) AS heap, sum(pg_indexes_size(c.relation)) AS key, sum(s.n_dead_tup) AS dead,
           sum(s.autovacuum_count) AS vacuums
    FROM chunk AS c
    LEFT JOIN pg_stat_all_tables AS s ON s.relid = c.relation
    WHERE c.of = 'samples_raw'
),
largest AS (
    SELECT i.indexrelid
    FROM chunk AS c JOIN pg_index AS i ON i.indrelid = c.relation
    WHERE c.of = 'samples_raw'
    ORDER BY pg_relation_size(i.indexrelid) DESC LIMIT 1
),
wal AS (
    SELECT w.wal_bytes::int8 AS bytes, w.wal_fpi AS images FROM pg_stat_wal AS w
)
SELECT (SELECT coalesce(sum(b.rows), 0) FROM plant.ingest_batch AS b WHERE b.kind = 'samples')::int8 AS written,
       (SELECT coalesce(sum(p.n), 0) FROM plant.samples_packed AS p)::int8 AS packed,
       (SELECT coalesce(sum(pg_total_relation_size(c.relation)), 0) FROM chunk AS c
        WHERE c.of = 'samples_packed')::int8 AS packed_bytes,
       (SELECT coalesce(sum(pg_total_relation_size(c.relation)), 0) FROM chunk AS c
        WHERE c.of LIKE 'rollup%')::int8 AS rollup_bytes,
       coalesce(raw.heap, 0)::int8 AS heap_bytes, coalesce(raw.key, 0)::int8 AS key_bytes,
       coalesce(raw.dead, 0)::int8 AS dead_rows, coalesce(raw.vacuums, 0)::int8 AS vacuums,
       (SELECT m.level FROM largest AS l
        CROSS JOIN LATERAL public.bt_metap(l.indexrelid::regclass::text) AS m)::int AS key_levels,
       wal.bytes AS wal_bytes, wal.images AS wal_images,
       pg_database_size(current_database())::int8 AS database_bytes,
       (SELECT coalesce(sum(extract(epoch FROM d.to_time - d.from_time) / 60), 0) FROM plant.rollup_dirty AS d
        WHERE NOT d.hours AND d.open_since IS NULL)::int8 AS dirty_minutes,
       (SELECT count(DISTINCT s.day) FROM plant.day_seal AS s)::int8 AS sealed_days,
       (SELECT coalesce(sum((e.detail ->> 'rows')::int8), 0) FROM plant.event AS e
        WHERE e.type = 'retention' AND e.detail ->> 'what' = 'raw')::int8 AS dropped
FROM raw, wal;

-- name: count_samples_by_hour
-- By hour from $1 on: channels, the fewest and the most samples of a channel, and all samples. Each sample counts once,
-- whatever its form.
WITH
raw AS (
    SELECT r.channel_id, date_trunc('hour', r.time, 'UTC') AS hour, count(*) AS n
    FROM plant.samples_raw AS r
    LEFT JOIN plant.packed_channel AS c ON c.channel_id = r.channel_id
    WHERE r.time >= $1 AND CASE WHEN r.time >= coalesce(c.until, '-infinity') THEN true
                                ELSE NOT plant.is_packed(r.channel_id, r.time) END
    GROUP BY r.channel_id, date_trunc('hour', r.time, 'UTC')
),
hourly AS (
    SELECT b.channel_id, b.hour, sum(b.n) AS n
    FROM (SELECT r.channel_id, r.hour, r.n FROM raw AS r
          UNION ALL
          SELECT p.channel_id, p.hour, p.n FROM plant.samples_packed AS p WHERE p.hour >= $1) AS b
    GROUP BY b.channel_id, b.hour
)
SELECT e.hour, count(*)::int AS channels, min(e.n)::int8 AS least, max(e.n)::int8 AS most, sum(e.n)::int8 AS samples
FROM hourly AS e
GROUP BY e.hour
ORDER BY e.hour;

-- name: count_written_samples
-- Samples by plant.ingest_batch.
SELECT coalesce(sum(b.rows), 0)::int8 FROM plant.ingest_batch AS b WHERE b.kind = 'samples';

-- name: select_sealed_days
SELECT DISTINCT s.day FROM plant.day_seal AS s ORDER BY s.day;

-- name: select_failed_runs
-- Failed runs of jobs, and why.
SELECT r.job, r.detail, count(*)::int8 AS n FROM plant.job_run AS r WHERE r.outcome = 'failed'
GROUP BY 1, 2 ORDER BY 1, 2;
