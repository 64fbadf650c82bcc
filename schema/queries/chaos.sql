-- What `plantlog chaos` asks once the faults are over.

-- name: behind
-- Sources with channels of which the table has nothing dated later than $1 (µs since 1970), and how many. When it was
-- received does not count: a server hands out its queues in any order, the oldest values last maybe. Nor does what is
-- dated later than now: a plant's clock may have been ahead.
SELECT s.name, count(*) AS channels
FROM plant.channel AS c
JOIN plant.source AS s ON s.id = c.source_id
WHERE c.retired_at IS NULL
  AND NOT EXISTS (
    SELECT FROM plant.samples_raw AS r
    WHERE r.channel_id = c.id AND r.time <= now() AND r.time > to_timestamp(0) + $1::int8 * INTERVAL '1 microsecond'
  )
  AND NOT EXISTS (
    SELECT FROM plant.event AS e
    WHERE e.channel_id = c.id AND e.type = 'text'
      AND e.time <= now() AND e.time > to_timestamp(0) + $1::int8 * INTERVAL '1 microsecond'
  )
GROUP BY s.name
ORDER BY s.name;

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

-- name: unmade
-- How many rows of rollup_dirty speak of minutes that had begun by $1 (µs since 1970).
SELECT count(*) FROM plant.rollup_dirty AS d
WHERE NOT d.hours AND d.from_time <= to_timestamp(0) + $1::int8 * INTERVAL '1 microsecond';

-- name: closed
-- Minutes that writers closed with rows of their own, and these rows.
SELECT c.minutes, c.rows FROM plant.rollup_closed AS c;
