-- What `plantlog chaos` asks once the faults are over.

-- name: newest
-- Of each source that has a channel, when the newest batch of samples in the table was received: microseconds since
-- 1970, NULL where there is none.
SELECT s.name, (extract(epoch FROM max(b.received_at)) * 1000000)::int8 AS us
FROM plant.source AS s
LEFT JOIN plant.ingest_batch AS b ON b.source_id = s.id AND b.kind = 'samples'
GROUP BY s.name;

-- name: gaps
-- By reason: how many, how many of them backfilled, how many still open, and their length in seconds, channels summed.
SELECT g.reason, count(*) AS gaps, count(*) FILTER (WHERE g.backfilled_at IS NOT NULL) AS backfilled,
    count(*) FILTER (WHERE g.to_time IS NULL) AS open,
    coalesce(sum(extract(epoch FROM g.to_time - g.from_time)), 0)::float8 AS seconds
FROM plant.gap AS g
GROUP BY g.reason
ORDER BY g.reason;

-- name: open
SELECT count(*) FROM plant.gap AS g WHERE g.to_time IS NULL;

-- name: quarantined
SELECT count(*) FROM plant.quarantine;

-- name: lock
-- Keeps writers and readers of the samples out until the transaction ends.
LOCK TABLE plant.samples_raw IN ACCESS EXCLUSIVE MODE;

-- name: terminate
-- Ends every other session of the database.
SELECT pg_terminate_backend(a.pid)
FROM pg_stat_activity AS a
WHERE a.datname = current_database() AND a.backend_type = 'client backend' AND a.pid <> pg_backend_pid();
