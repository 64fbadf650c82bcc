-- Backups, and the rehearsal of a restore.

-- name: select_counts
-- What was there at a time. Old rows are deleted from the original meanwhile: a restored copy has at least as many.
SELECT
    (SELECT count(*) FROM plant.ingest_batch WHERE written_at < $1) AS batches,
    (SELECT coalesce(sum(rows), 0)::int8 FROM plant.ingest_batch WHERE written_at < $1) AS rows,
    (SELECT count(*) FROM plant.day_seal WHERE sealed_at < $1) AS seals;

-- name: select_next_timeline
-- That of a server which was restored from this one's backups.
SELECT ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::int4 + 1;

-- name: wake_checkpointer
-- PostgreSQL 17's checkpointer ignores archive_timeout until something wakes it, for up to checkpoint_timeout: it
-- begins to wait while the server recovers.
SELECT pg_reload_conf()
FROM pg_stat_archiver AS a
WHERE coalesce(a.last_archived_time, '-infinity') < greatest(pg_postmaster_start_time(), now() - interval '75 seconds');

-- name: select_newest
-- Time (µs) of the newest sample of each source that is not in the future.
SELECT s.id, s.kind, (extract(epoch FROM max(least(b.last_time, b.received_at))) * 1000000)::int8 AS time
FROM plant.source AS s
LEFT JOIN plant.ingest_batch AS b ON b.source_id = s.id AND b.kind = 'samples'
GROUP BY s.id, s.kind;

-- name: select_open_gaps
SELECT g.source_id, g.channel_id, (extract(epoch FROM g.from_time) * 1000000)::int8 AS from_time, g.reason, g.detail
FROM plant.gap AS g
WHERE g.to_time IS NULL;

-- name: select_waiting_wal
-- Segments of 16 MB that are not in the repository yet, and whether the newest attempt failed.
SELECT
    (SELECT count(*) FROM pg_ls_archive_statusdir() WHERE name LIKE '%.ready') AS segments,
    coalesce(a.last_failed_time > coalesce(a.last_archived_time, '-infinity'), FALSE) AS failing
FROM pg_stat_archiver AS a;
