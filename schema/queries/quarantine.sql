-- What `plantlog spool quarantine` and `plantlog spool retry` ask.

-- name: reasons
SELECT q.reason, count(*) AS rows, min(q.quarantined_at) AS oldest, max(q.quarantined_at) AS newest,
       count(*) FILTER (WHERE q.retried_at IS NOT NULL) AS retried,
       coalesce(array_agg(DISTINCT s.name) FILTER (WHERE s.name IS NOT NULL), '{}') AS sources
FROM plant.quarantine AS q
LEFT JOIN plant.source AS s ON s.id = q.source_id
GROUP BY q.reason
ORDER BY q.reason;

-- name: newest
-- The newest rows of a reason: $1 reason, $2 how many.
SELECT q.quarantined_at, coalesce(s.name, q.source_id::text) AS source, coalesce(c.name, q.channel_id::text) AS channel,
       CASE WHEN q.detail ? 'event' THEN 'event' WHEN q.detail ? 'gap' THEN 'gap'
            WHEN q.detail ? 'count' THEN 'count' ELSE 'sample' END AS kind,
       q.time_us, q.value::text AS value, q.status, q.detail ->> 'error' AS error, q.retried_at
FROM plant.quarantine AS q
LEFT JOIN plant.source AS s ON s.id = q.source_id
LEFT JOIN plant.channel AS c ON c.id = q.channel_id
WHERE q.reason = $1
ORDER BY q.quarantined_at DESC, q.id
LIMIT $2;

-- name: next
-- The next rows to be tried again, behind id $1, at most $2.
SELECT q.id, q.reason, q.source_id, q.received_at, q.channel_id, q.time_us, q.value, q.status, q.detail::text AS detail
FROM plant.quarantine AS q
WHERE q.id > $1
ORDER BY q.id
LIMIT $2;

-- name: lock
-- Those of the rows $1 that are still there; what somebody else tries now is left to him.
SELECT q.id FROM plant.quarantine AS q WHERE q.id = ANY ($1::int8[]) FOR UPDATE SKIP LOCKED;

-- name: landed
DELETE FROM plant.quarantine WHERE id = ANY ($1::int8[]);

-- name: stays
UPDATE plant.quarantine SET retried_at = clock_timestamp() WHERE id = ANY ($1::int8[]);
