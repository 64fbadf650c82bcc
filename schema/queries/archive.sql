-- Archiving sealed days, as owner. ops/maintenance/archive.py runs them.

-- name: count_archived
-- Days that installation $1 archived in location $2.
SELECT count(*) FROM plant.archived_day AS a WHERE a.installation = $1 AND a.location = $2;

-- name: mark_late
-- Archived days of installation $1 that samples came for after some had been dropped, of what came since the last time. What was
-- written in the last minutes may not be visible yet: it is left for the next time.
WITH arrivals AS MATERIALIZED (
    SELECT b.first_time, b.last_time, b.written_at
    FROM plant.ingest_batch AS b
    LEFT JOIN plant.source AS s ON s.id = b.source_id
    LEFT JOIN plant.installation AS i ON i.id = s.installation_id
    WHERE b.written_at >= coalesce((SELECT e.until FROM plant.archive_evidence AS e WHERE e.installation = $1::int), '-infinity')
      AND b.kind = 'samples' AND coalesce(i.number, 1) IN ($1, CASE $1 WHEN 1 THEN i.number END)
      AND b.first_time < (SELECT (max(a.day) + 1)::timestamp AT TIME ZONE 'UTC' FROM plant.archived_day AS a
                          WHERE a.installation = $1 AND a.dropped_at IS NOT NULL)
),
checked AS (
    INSERT INTO plant.archive_evidence AS e (installation, until) VALUES ($1, clock_timestamp() - INTERVAL '5 minutes')
    ON CONFLICT (installation) DO UPDATE SET until = excluded.until
)
UPDATE plant.archived_day AS a
SET late = true
WHERE a.installation = $1 AND NOT a.late
  AND EXISTS (SELECT FROM arrivals AS b
              WHERE b.written_at >= a.dropped_at - INTERVAL '5 minutes'
                AND b.first_time < (a.day + 1)::timestamp AT TIME ZONE 'UTC' AND b.last_time >= a.day::timestamp AT TIME ZONE 'UTC')
RETURNING a.day;

-- name: select_due_days
-- Days with a seal of installation $1 that are not archived by their newest one, oldest first. Where samples were dropped, the
-- database no longer has what the archive has.
SELECT s.day
FROM plant.day_seal AS s
JOIN plant.installation AS i ON i.number = s.chain AND s.day::timestamp AT TIME ZONE 'UTC' >= i.archive_from
LEFT JOIN plant.archived_day AS a ON a.installation = s.chain AND a.day = s.day
WHERE s.chain = $1 AND a.dropped_at IS NULL
GROUP BY s.day, a.revision
HAVING max(s.revision) IS DISTINCT FROM a.revision
ORDER BY s.day;

-- name: select_state
-- What installation $1 has archived: days, the last one, and those that more samples came for after theirs were dropped.
SELECT count(*) AS days, max(a.day) AS last, count(*) FILTER (WHERE a.late) AS late
FROM plant.archived_day AS a
WHERE a.installation = $1;

-- name: insert_archived_day
-- Day $1 of installation $2 is archived: $3 revision, $4 root, $5 location, $6 samples, $7 bytes, $8 read_from;
-- and its event.
WITH archived AS (
    INSERT INTO plant.archived_day AS a (day, installation, revision, root, location, samples, bytes, read_from)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
    ON CONFLICT (installation, day) DO UPDATE
    SET revision = excluded.revision, root = excluded.root, archived_at = excluded.archived_at,
        location = excluded.location, samples = excluded.samples, bytes = excluded.bytes,
        read_from = excluded.read_from
    RETURNING a.*
)
INSERT INTO plant.event (time, id, type, text, detail)
SELECT a.archived_at, hashtextextended(concat_ws(' ', a.archived_at::text, d.detail::text), 29) & 9223372036854775807, 'archived',
       format('%s, revision %s: %s samples in %s bytes', a.day, a.revision, a.samples, a.bytes), d.detail
FROM archived AS a
CROSS JOIN LATERAL (SELECT jsonb_build_object('day', a.day, 'installation', a.installation, 'revision', a.revision,
                                              'root', encode(a.root, 'hex'), 'location', a.location, 'samples', a.samples,
                                              'bytes', a.bytes) AS detail) AS d;
