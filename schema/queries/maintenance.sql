-- The maintenance process and its commands, as role plant_maintenance.

-- name: try_lock_job
-- Whether this session may run job $1 (a name, or one and an installation): only one session at a time may.
SELECT pg_try_advisory_lock(73610234, hashtext($1));

-- name: insert_run
-- Begins a run of job $1 by installation $2. This session has the job's lock, so a run without an end was killed; $3:
-- only one of this installation.
WITH killed AS (
    UPDATE plant.job_run AS r
    SET ended_at = clock_timestamp(), outcome = 'failed', detail = 'killed or disconnected before it ended'
    WHERE r.job = $1 AND r.outcome IS NULL AND (NOT $3::boolean OR coalesce(r.installation_id = $2, true))
)
INSERT INTO plant.job_run (job, installation_id) VALUES ($1, $2);

-- name: runs_elsewhere
-- Whether another installation than $2 did job $1 in the last $3 seconds.
SELECT EXISTS (SELECT FROM plant.job_run AS r
               WHERE r.job = $1 AND r.outcome = 'ok' AND r.installation_id <> $2
                 AND r.ended_at > clock_timestamp() - INTERVAL '1 second' * $3::float8);

-- name: end_run
-- Ends the open run of job $1 by installation $2, whose lock this session has: $3 outcome, $4 rows, $5 bytes,
-- $6 detail.
UPDATE plant.job_run AS r
SET ended_at = clock_timestamp(), outcome = $3, rows = $4, bytes = $5, detail = $6
WHERE r.job = $1 AND r.installation_id = $2 AND r.outcome IS NULL;

-- name: delete_open_run
-- Deletes the open run of job $1 by installation $2, which had nothing to do.
DELETE FROM plant.job_run AS r WHERE r.job = $1 AND r.installation_id = $2 AND r.outcome IS NULL;

-- name: insert_skipped_run
-- Records that job $1 of installation $3 was skipped because of $2. Repeated skips for one reason extend one row.
WITH newest AS (
    SELECT r.id, r.outcome, r.detail FROM plant.job_run AS r
    WHERE r.job = $1 AND r.installation_id = $3
    ORDER BY r.started_at DESC, r.id DESC LIMIT 1
),
extended AS (
    UPDATE plant.job_run AS r SET ended_at = clock_timestamp()
    FROM newest AS n
    WHERE r.id = n.id AND n.outcome = 'skipped' AND n.detail = $2
    RETURNING r.id
)
INSERT INTO plant.job_run (job, ended_at, outcome, detail, installation_id)
SELECT $1, clock_timestamp(), 'skipped', $2, $3 WHERE NOT EXISTS (SELECT FROM extended);

-- name: select_runs
-- The newest run of each job of $1 text[], with its newest success; of jobs $2 text[] only those of installation $3.
SELECT j.name AS job, r.started_at, r.ended_at, r.outcome, r.rows, r.bytes, r.detail,
       (SELECT max(s.ended_at) FROM plant.job_run AS s
        WHERE s.job = j.name AND s.outcome = 'ok'
          AND (s.job <> ALL ($2::text[]) OR coalesce(s.installation_id = $3, true))) AS succeeded_at
FROM unnest($1::text[]) WITH ORDINALITY AS j (name, ordinal)
LEFT JOIN LATERAL (
    SELECT n.* FROM plant.job_run AS n
    WHERE n.job = j.name AND (n.job <> ALL ($2::text[]) OR coalesce(n.installation_id = $3, true))
    ORDER BY n.started_at DESC, n.id DESC LIMIT 1
) AS r ON true
ORDER BY j.ordinal;

-- name: select_settings
-- late_until: no more late data before it; disk_budget: as configured.
SELECT now() - INTERVAL '1 second' * coalesce(
           (SELECT s.value::float8 FROM plant.setting AS s WHERE s.key = 'lateness'), 3600) AS late_until,
       (SELECT s.value::int8 FROM plant.setting AS s WHERE s.key = 'disk_budget') AS disk_budget,
       pg_database_size(current_database()) AS bytes,
       plant.closed_until() AS closed_until;

-- name: refresh_rollups
CALL plant.refresh_rollups();

-- name: select_due_retention
-- Slices that the classes' ages call for, with what they hold. Drops nothing.
SELECT d.what, d.relation::text AS relation, d.from_time, d.to_time, d.classes, s.retention, s.channels, s.rows,
       s.bytes, s.action
FROM plant.retention_due() AS d
CROSS JOIN LATERAL plant.drop_slice(d.what, d.relation, d.from_time, d.to_time, d.classes, 'age', true) AS s;

-- name: select_closed_units
-- Closed units of raw data, oldest first, and whether they may be dropped, as far as is known without a look at them.
SELECT u.relation::text AS relation, u.from_time, u.to_time, u.bytes,
       NOT plant.lacks_seal(u.from_time, u.to_time) AND NOT plant.awaits_archive(u.from_time, u.to_time)
           AND NOT plant.awaits_rollups('raw', u.from_time, u.to_time) AS free
FROM plant.retention_units('raw') AS u
WHERE u.to_time <= plant.closed_until();

-- name: drop_slice
-- $1 what, $2 relation, $3 from, $4 to, $5 classes (NULL: all), $6 why, $7 dry run
SELECT s.retention, s.channels, s.rows, s.bytes, s.action
FROM plant.drop_slice($1, $2::text::regclass, $3, $4, $5, $6, $7) AS s;

-- name: select_units
-- Bounds and bytes of everything that is stored by time, since $1.
SELECT u.from_time, u.to_time, u.bytes
FROM unnest(ARRAY['raw', '1m', '1h', 'event']) AS k (what)
CROSS JOIN LATERAL plant.retention_units(k.what) AS u
WHERE u.to_time > $1;

-- name: select_freed_bytes
-- Bytes that retention by age has freed since $1.
SELECT coalesce(sum((e.detail ->> 'bytes')::int8), 0)::int8
FROM plant.event AS e
WHERE e.type = 'retention' AND e.time >= $1 AND e.detail ->> 'why' = 'age' AND e.detail ->> 'action' = 'chunk';

-- name: record_retention
-- An event of $1 text, $2 detail, unless the same text was recorded less than a day ago.
SELECT plant.record_retention($1, $2::text::jsonb)
WHERE NOT EXISTS (SELECT FROM plant.event AS e
                  WHERE e.type = 'retention' AND e.time > now() - INTERVAL '1 day' AND e.text = $1);

-- name: record_overload
-- Begin or end of an overload: $1 time, $2 text, $3 figures.
SELECT plant.record_overload($1, $2, $3::text::jsonb);

-- name: record_restart
-- $1 time, $2 process, $3 installation.
SELECT plant.record_restart($1, $2, $3);

-- name: select_newest_overload
-- Of installation $1.
SELECT e.time, e.text FROM plant.event AS e
WHERE e.type = 'overload' AND coalesce(e.detail ->> 'installation' = $1::text, true)
ORDER BY e.time DESC LIMIT 1;

-- name: select_chunks_to_analyze
-- Closed chunks that were never analyzed, or of which a fifth changed since, at most $1.
SELECT format('%I.%I', k.chunk_schema, k.chunk_name) AS chunk
FROM timescaledb_information.chunks AS k
JOIN pg_class AS c ON c.oid = format('%I.%I', k.chunk_schema, k.chunk_name)::regclass
LEFT JOIN pg_stat_all_tables AS s ON s.relid = c.oid
WHERE k.hypertable_schema = 'plant'
  AND k.range_end <= now()
  AND (c.reltuples < 0 OR coalesce(s.n_mod_since_analyze, 0) > 0.2 * greatest(c.reltuples, 100))
  AND has_table_privilege(c.oid, 'MAINTAIN')
ORDER BY k.range_end DESC
LIMIT $1;

-- name: select_hypertables
SELECT format('%I.%I', h.hypertable_schema, h.hypertable_name) AS relation
FROM timescaledb_information.hypertables AS h
WHERE h.hypertable_schema = 'plant'
ORDER BY 1;

-- name: make_chunk
-- Creates the chunks of relation $1 for now and two days; returns how many were missing. A session that plans a query
-- meanwhile may keep the plan without the new chunk, but not beyond the next day's (plant._await_older_queries): before
-- it has rows.
SELECT sum(plant.make_chunk($1::text::regclass, now() + days * INTERVAL '1 day'))::int
FROM generate_series(0, 2) AS days;

-- name: delete_old_ingest_batch
-- Deletes at most $1 batches that are older than the longest retention of raw data, and than 30 days: they are the
-- evidence of arrival, and make a replay a no-op.
WITH retention AS (
    SELECT greatest(max(c.raw), INTERVAL '30 days') AS age FROM plant.retention_class AS c
    HAVING bool_and(c.raw IS NOT NULL)
),
old AS (
    SELECT b.ctid FROM plant.ingest_batch AS b, retention AS r WHERE b.written_at < now() - r.age LIMIT $1
)
DELETE FROM plant.ingest_batch AS b USING old AS o WHERE b.ctid = o.ctid;

-- name: delete_old_quarantine
-- The same for quarantined rows; at least a year.
WITH retention AS (
    SELECT greatest(max(c.raw), INTERVAL '365 days') AS age FROM plant.retention_class AS c
    HAVING bool_and(c.raw IS NOT NULL)
),
old AS (
    SELECT q.ctid FROM plant.quarantine AS q, retention AS r WHERE q.quarantined_at < now() - r.age LIMIT $1
)
DELETE FROM plant.quarantine AS q USING old AS o WHERE q.ctid = o.ctid;

-- name: delete_old_job_run
-- Deletes at most $1 runs: successful ones after a week, others after 90 days, never the newest of a job. They describe
-- this machine, not the plant: what retention dropped is in plant.event.
WITH old AS (
    SELECT r.ctid
    FROM plant.job_run AS r
    WHERE r.started_at < now() - CASE WHEN r.outcome = 'ok' THEN INTERVAL '7 days' ELSE INTERVAL '90 days' END
      AND EXISTS (SELECT FROM plant.job_run AS n
                  WHERE n.job = r.job AND n.started_at > r.started_at
                    AND n.installation_id IS NOT DISTINCT FROM r.installation_id)
    LIMIT $1
)
DELETE FROM plant.job_run AS r USING old AS o WHERE r.ctid = o.ctid;

-- name: select_reader_sessions
SELECT r.pid FROM plant.reader_sessions() AS r;

-- name: end_long_readers
-- $1: process ids to be ended in any case.
SELECT plant.end_long_readers(large => $1::int[]);

-- name: count_standbys
SELECT count(*) FROM pg_stat_replication;

-- name: reload_settings
SELECT pg_reload_conf();

-- name: insert_retention_receipt
-- $1 day, $2 content, $3 signer, $4 signature.
INSERT INTO plant.receipt (day, kind, content, signer, signature) VALUES ($1, 'retention', $2, $3, $4);

-- name: select_last_retention
-- What the transaction recorded of a slice that it dropped: the newest event since $1 of $2 what and $3 relation.
SELECT e.detail::text
FROM plant.event AS e
WHERE e.type = 'retention' AND e.time >= $1 AND e.detail ->> 'what' = $2 AND e.detail ->> 'relation' = $3
ORDER BY e.time DESC
LIMIT 1;

-- name: select_clock
SELECT clock_timestamp();
