-- What `plantlog status` asks, as the reader.

-- name: database
-- Edition, version, size and chunks of the samples, and how much is known to be missing now.
SELECT (SELECT s.value FROM plant.setting AS s WHERE s.key = 'edition')                     AS edition,
       (SELECT s.value FROM plant.setting AS s WHERE s.key = 'timescaledb_version')         AS timescaledb_version,
       split_part(current_setting('server_version'), ' ', 1)                                AS postgresql_version,
       pg_database_size(current_database())                                                 AS bytes,
       (SELECT count(*) FROM timescaledb_information.chunks AS c
        WHERE c.hypertable_schema = 'plant' AND c.hypertable_name = 'samples_raw')          AS chunks,
       (SELECT count(*) FROM plant.gap AS g WHERE g.to_time IS NULL)                        AS open_gaps,
       -- Gaps in which nothing was missing after all are none.
       (SELECT count(*) FROM plant.gap AS g
        WHERE g.from_time >= date_trunc('day', now(), 'UTC') AND g.to_time > g.from_time)   AS gaps_today,
       (SELECT count(*) FROM plant.quarantine AS q WHERE q.retried_at IS NULL)              AS quarantined;
