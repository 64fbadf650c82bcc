-- `plantlog status`, as role plant_reader.

-- name: select_problems
-- Problems of the server's configuration, as text. A query without a time bound locks 2 to 5 relations a chunk, and
-- each day is a chunk: there must be room for five such sessions over ten years.
SELECT format('max_locks_per_transaction is %s: set %s or more and restart the server, or queries over years fail',
              s.locks, ceil(5 * 5 * 3650.0 / s.sessions)) AS problem
FROM (SELECT current_setting('max_locks_per_transaction')::int AS locks,
             current_setting('max_connections')::int + current_setting('max_prepared_transactions')::int
                 AS sessions) AS s
WHERE s.locks * s.sessions < 5 * 5 * 3650
UNION ALL
SELECT 'the reader may take advisory locks and make large objects, as only a superuser can revoke that'
WHERE has_function_privilege('plant_reader', 'pg_advisory_lock(bigint)', 'EXECUTE')
   OR has_function_privilege('plant_reader', 'lo_create(oid)', 'EXECUTE')
UNION ALL
SELECT format('the reader may make temporary tables: REVOKE TEMPORARY ON DATABASE %I FROM PUBLIC', current_database())
WHERE has_database_privilege('plant_reader', current_database(), 'TEMPORARY');

-- name: select_database
-- Edition, versions, size, chunks of samples, and outages: gaps of a source, or of some of its channels, that begin
-- together (begins_outage). Gaps that turned out to be empty, and removed channels, do not count. restored: the loss
-- that the writer noticed in the last day. Outages and quarantine are those of installation $1 (NULL: all).
WITH
own AS (
    SELECT s.id FROM plant.source AS s WHERE coalesce(s.installation_id = $1::uuid, true)
),
day AS (
    SELECT date_trunc('day', now(), 'UTC') AS began
),
beginnings AS (
    SELECT g.source_id, g.from_time, g.to_time,
           plant.begins_outage(g.from_time, lag(g.from_time) OVER begun, lag(g.to_time) OVER begun) AS begins_outage
    FROM plant.gap AS g
    CROSS JOIN day AS d
    WHERE g.source_id IN (SELECT o.id FROM own AS o)
      AND g.reason <> 'removed'
      AND (g.to_time IS NULL OR (g.to_time > g.from_time AND g.to_time >= d.began))
    WINDOW begun AS (PARTITION BY g.source_id ORDER BY g.from_time, g.to_time)
),
gaps AS (
    SELECT b.source_id, b.from_time, b.to_time,
           count(*) FILTER (WHERE b.begins_outage)
               OVER (PARTITION BY b.source_id ORDER BY b.from_time, b.to_time ROWS UNBOUNDED PRECEDING) AS outage
    FROM beginnings AS b
),
outages AS (
    SELECT min(g.from_time) AS began, bool_or(g.to_time IS NULL) AS is_open
    FROM gaps AS g
    GROUP BY g.source_id, g.outage
)
SELECT (SELECT s.value FROM plant.setting AS s WHERE s.key = 'edition')                     AS edition,
       (SELECT s.value FROM plant.setting AS s WHERE s.key = 'timescaledb_version')         AS timescaledb_version,
       split_part(current_setting('server_version'), ' ', 1)                                AS postgresql_version,
       host(inet_server_addr()) || ':' || inet_server_port()                                AS server,
       (SELECT count(*) FROM pg_stat_replication)                                           AS standbys,
       pg_database_size(current_database())                                                 AS bytes,
       (SELECT count(*) FROM timescaledb_information.chunks AS c
        WHERE c.hypertable_schema = 'plant' AND c.hypertable_name = 'samples_raw')          AS chunks,
       (SELECT count(*) FROM outages AS o WHERE o.is_open)                                  AS outages_open,
       (SELECT count(*) FROM outages AS o CROSS JOIN day AS d WHERE o.began >= d.began)     AS outages_today,
       (SELECT count(*) FROM plant.quarantine AS q
        WHERE q.retried_at IS NULL AND q.source_id IN (SELECT o.id FROM own AS o))          AS quarantined,
       (SELECT e.time::text || ': ' || e.text FROM plant.event AS e
        WHERE e.type = 'database_restored' AND e.time > now() - INTERVAL '1 day'
        ORDER BY e.time DESC LIMIT 1)                                                       AS restored;

-- name: select_newer_runs
-- Of jobs $2 text[] the newest run of installation $1 that has ended and began after $3 float8[] (NULL: any);
-- s since 1970.
SELECT j.name AS job, r.outcome, extract(epoch FROM r.started_at)::float8 AS started_at,
       extract(epoch FROM r.ended_at - r.started_at)::float8 AS seconds, r.rows, r.bytes, r.detail
FROM unnest($2::text[], $3::float8[]) AS j (name, after)
CROSS JOIN LATERAL (
    SELECT n.* FROM plant.job_run AS n
    WHERE n.job = j.name AND n.installation_id = $1 AND n.started_at > to_timestamp(coalesce(j.after, 0))
      AND n.ended_at IS NOT NULL
    ORDER BY n.started_at DESC, n.id DESC LIMIT 1
) AS r;
