-- `plantlog admin spool quarantine` and `plantlog admin spool retry`.

-- name: select_reasons
SELECT q.reason, count(*) AS rows, min(q.quarantined_at) AS oldest, max(q.quarantined_at) AS newest,
       count(*) FILTER (WHERE q.retried_at IS NOT NULL) AS retried,
       coalesce(array_agg(DISTINCT s.name) FILTER (WHERE s.name IS NOT NULL), '{}') AS sources
FROM plant.quarantine AS q
LEFT JOIN plant.source AS s ON s.id = q.source_id
GROUP BY q.reason
ORDER BY q.reason;

-- name: select_newest
-- The newest rows of a reason: $1 reason, $2 how many.
SELECT q.quarantined_at, coalesce(s.name, q.source_id::text) AS source, coalesce(c.name, q.channel_id::text) AS channel,
       CASE WHEN q.detail ? 'event' THEN 'event' WHEN q.detail ? 'gap' THEN 'gap'
            WHEN q.detail ? 'count' THEN 'count' ELSE 'sample' END AS kind,
       q.time_us, q.value::text AS value, q.status, q.retried_at,
       coalesce(q.detail ->> 'error',
                CASE WHEN q.reason = 'future' THEN 'later than [writer] future_limit'
                     WHEN q.reason = 'ancient' AND s.kind = 'push' AND q.time_us BETWEEN 0 AND 31535999999999
                         THEN 'older than [writer] oldest; in 1970: is the precision ns?'
                     WHEN q.reason = 'ancient' THEN 'older than [writer] oldest'
                     WHEN q.reason = 'days' THEN 'of more days in an hour than [writer] days_per_hour' END) AS error,
       coalesce(q.detail ->> 'event', q.detail ->> 'gap', q.detail ->> 'count') AS content
FROM plant.quarantine AS q
LEFT JOIN plant.source AS s ON s.id = q.source_id
LEFT JOIN plant.channel AS c ON c.id = q.channel_id
WHERE q.reason = $1
ORDER BY q.quarantined_at DESC, q.id
LIMIT $2;

-- name: select_channel_names
SELECT c.id, c.name FROM plant.channel AS c WHERE c.id = ANY ($1::int4[]);

-- name: select_next
-- The next rows to retry, after id $1, at most $2.
SELECT q.id, q.reason, q.source_id, q.received_at, q.channel_id, q.time_us, q.value, q.status, q.detail::text AS detail
FROM plant.quarantine AS q
WHERE q.id > $1
ORDER BY q.id
LIMIT $2;

-- name: lock_rows
-- Locks the rows among $1 that still exist, except those that another session is retrying.
SELECT q.id FROM plant.quarantine AS q WHERE q.id = ANY ($1::int8[]) FOR UPDATE SKIP LOCKED;

-- name: delete_rows
-- Deletes rows that were written, and records their arrival, a batch a row, so that the seal of their day can be
-- amended. Spools have positive sequences, these are negative.
-- Times are limited to what samples can have (1970 to 2200).
WITH deleted AS (
    DELETE FROM plant.quarantine AS q WHERE q.id = ANY ($1::int8[])
    RETURNING q.id, q.source_id, q.received_at, q.detail,
              timestamptz 'epoch' + INTERVAL '1 microsecond' * greatest(0, least(q.time_us, 7258118400000000)) AS time
)
INSERT INTO plant.ingest_batch (source_id, sequence, kind, rows, first_time, last_time, received_at)
SELECT l.source_id, -l.id,
       CASE WHEN l.detail ? 'event' THEN 'events' WHEN l.detail ? 'gap' THEN 'gaps' ELSE 'samples' END,
       1, l.time, l.time, l.received_at
FROM deleted AS l
WHERE NOT l.detail ? 'count' AND l.time IS NOT NULL
ON CONFLICT (source_id, sequence) DO NOTHING;

-- name: mark_retried
UPDATE plant.quarantine SET retried_at = clock_timestamp() WHERE id = ANY ($1::int8[]);
