-- `plantlog lab chaos`, once the faults are over.

-- name: select_stale_sources
-- Sources with channels that have no sample or text dated later than $1 (µs since 1970), and how many channels. The
-- time of arrival does not count: a server may send its queues in any order, the oldest values last. Times in the
-- future do not count either: a plant's clock may have been ahead.
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

-- name: select_gap_totals
-- By reason: number of gaps, of backfilled and of open ones, and their length in seconds, summed over channels.
SELECT g.reason, count(*) AS gaps, count(*) FILTER (WHERE g.backfilled_at IS NOT NULL) AS backfilled,
    count(*) FILTER (WHERE g.to_time IS NULL) AS open,
    coalesce(sum(extract(epoch FROM g.to_time - g.from_time)), 0)::float8 AS seconds
FROM plant.gap AS g
GROUP BY g.reason
ORDER BY g.reason;

-- name: count_open_gaps
SELECT count(*) FROM plant.gap AS g WHERE g.to_time IS NULL;

-- name: count_quarantined
SELECT count(*) FROM plant.quarantine;

-- name: lock_samples
-- Blocks writers and readers of samples until the transaction ends.
LOCK TABLE plant.samples_raw IN ACCESS EXCLUSIVE MODE;

-- name: terminate_sessions
-- Ends every other session of the database.
SELECT pg_terminate_backend(a.pid)
FROM pg_stat_activity AS a
WHERE a.datname = current_database() AND a.backend_type = 'client backend' AND a.pid <> pg_backend_pid();

-- name: count_dirty_minutes
-- Rows of rollup_dirty for minutes that had begun by $1 (µs since 1970).
SELECT count(*) FROM plant.rollup_dirty AS d
WHERE NOT d.hours AND d.from_time <= to_timestamp(0) + $1::int8 * INTERVAL '1 microsecond';

-- name: select_closed_minutes
-- Minutes that writers closed with rows of their own, and the number of these rows.
SELECT c.minutes, c.rows FROM plant.rollup_closed AS c;

-- name: select_incomplete_members
-- Members of a redundant pair that are away, or miss something that they received again, if at all,
-- less than a moment ago.
SELECT m.member FROM plant.member AS m
WHERE m.away
   OR m.seen_at < clock_timestamp() - INTERVAL '5 seconds'
   OR EXISTS (SELECT FROM plant.member_gap AS g
              WHERE g.member = m.member AND g.reason <> 'standby' AND coalesce(g.to_time, 'infinity') >= m.seen_at)
ORDER BY m.member;

-- name: count_streaming
-- Standbys that have nearly all that the primary has.
SELECT count(*) FROM pg_stat_replication AS r
WHERE r.state = 'streaming' AND pg_wal_lsn_diff(pg_current_wal_lsn(), r.replay_lsn) < 4194304;

-- name: count_gaps_since
-- Gaps of some length that begin at or after $1 (µs since 1970).
SELECT count(*) FROM plant.gap AS g
WHERE g.to_time IS DISTINCT FROM g.from_time AND g.backfilled_at IS NULL
  AND g.from_time >= to_timestamp(0) + $1::int8 * INTERVAL '1 microsecond';
