-- What `plantlog status` asks, as the reader.

-- name: database
-- Edition, version, size and chunks of the samples, and what is known to be missing: outages are stretches of time in
-- which a source, or some of its channels, has gaps. Gaps in which nothing was missing after all are none.
WITH
day AS (
    SELECT date_trunc('day', now(), 'UTC') AS began
),
outages AS (
    SELECT g.source_id, unnest(range_agg(tstzrange(g.from_time, g.to_time))) AS outage
    FROM plant.gap AS g
    CROSS JOIN day AS d
    WHERE g.to_time IS NULL OR (g.to_time > g.from_time AND g.to_time >= d.began)
    GROUP BY g.source_id
)
SELECT (SELECT s.value FROM plant.setting AS s WHERE s.key = 'edition')                     AS edition,
       (SELECT s.value FROM plant.setting AS s WHERE s.key = 'timescaledb_version')         AS timescaledb_version,
       split_part(current_setting('server_version'), ' ', 1)                                AS postgresql_version,
       pg_database_size(current_database())                                                 AS bytes,
       (SELECT count(*) FROM timescaledb_information.chunks AS c
        WHERE c.hypertable_schema = 'plant' AND c.hypertable_name = 'samples_raw')          AS chunks,
       (SELECT count(*) FROM outages AS o WHERE upper(o.outage) IS NULL)                    AS outages_open,
       (SELECT count(*) FROM outages AS o CROSS JOIN day AS d
        WHERE lower(o.outage) >= d.began)                                                   AS outages_today,
       (SELECT count(*) FROM plant.quarantine AS q WHERE q.retried_at IS NULL)              AS quarantined;
