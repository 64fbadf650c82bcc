-- Archiving sealed days, as owner. history/archive_days and ops/maintenance/archive.py run them.

-- name: count_archived
-- Days that installation $1 archived in location $2.
SELECT count(*) FROM plant.archived_day AS a WHERE a.installation = $1 AND a.location = $2;

-- name: mark_late
-- Days of installation $1 that batches came for after some samples had been dropped, of what came since the last time.
-- What was written in the last minutes may not be visible yet: it is looked at again the next time.
WITH arrivals AS MATERIALIZED (
    SELECT b.first_time, CASE b.kind WHEN 'gaps' THEN b.written_at ELSE b.last_time END AS last_time, b.written_at
    FROM plant.ingest_batch AS b
    LEFT JOIN plant.source AS s ON s.id = b.source_id
    LEFT JOIN plant.installation AS i ON i.id = s.installation_id
    WHERE b.written_at >= coalesce((SELECT e.until FROM plant.archive_evidence AS e WHERE e.installation = $1::int),
                                   '-infinity')
      AND coalesce(i.number, 1) IN ($1, CASE $1 WHEN 1 THEN i.number END)
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
              WHERE b.written_at >= greatest(a.dropped_at, a.archived_at) - INTERVAL '5 minutes'
                AND b.first_time < (a.day + 1)::timestamp AT TIME ZONE 'UTC'
                AND b.last_time >= a.day::timestamp AT TIME ZONE 'UTC');

-- name: select_due_days
-- Days of installation $1 that are not in the archive as they are, oldest first: not by their newest seal, or late
-- samples came, or what is stored is to be compared again; or whose amendments are to be merged: $2 are too many, and
-- any after $3. Last those that are in another archive and nowhere else: somebody has to copy them.
SELECT s.day, max(s.revision) AS revision
FROM plant.day_seal AS s
JOIN plant.installation AS i ON i.number = s.chain AND s.day::timestamp AT TIME ZONE 'UTC' >= i.archive_from
LEFT JOIN plant.archived_day AS a ON a.installation = s.chain AND a.day = s.day
WHERE s.chain = $1::int
GROUP BY s.day, a.day, a.installation, i.archive_location
HAVING max(s.revision) IS DISTINCT FROM a.revision OR a.late OR a.amendments >= $2::int
    OR a.location <> i.archive_location
    OR (a.amendments > 0 AND a.archived_at < clock_timestamp() - $3::interval)
    OR EXISTS (SELECT FROM plant.archived_channel AS c WHERE c.day = s.day AND c.installation = $1 AND c.n IS NULL)
ORDER BY coalesce(a.dropped_at IS NOT NULL AND a.location <> i.archive_location, false), s.day;

-- name: select_archived_day
SELECT a.dropped_at IS NOT NULL AS dropped, a.late, a.location, a.revision, a.root, i.id AS installation
FROM plant.archived_day AS a
JOIN plant.installation AS i ON i.number = a.installation
WHERE a.installation = $1 AND a.day = $2;

-- name: update_location
-- Day $1 of installation $2 is in location $3 now.
UPDATE plant.archived_day AS a SET location = $3 WHERE a.day = $1 AND a.installation = $2;

-- name: select_whether_dropped
-- Whether samples of day $1 are only in the archive of installation $2.
SELECT EXISTS (SELECT FROM plant.archived_day AS a
               WHERE a.day = $1 AND a.installation = $2 AND a.dropped_at IS NOT NULL);

-- name: select_whole_channels
-- Channels of day $1 that the database has all samples of although others of the day were dropped, by installation $2.
SELECT c.channel_id FROM plant.archived_channel AS c WHERE c.day = $1 AND c.installation = $2 AND c.whole;

-- name: select_known_channels
-- Channels of day $1 of which it is known what is both in the database and in the archive.
SELECT c.channel_id FROM plant.archived_channel AS c WHERE c.day = $1 AND c.n IS NOT NULL;

-- name: select_unknown_channels
-- The others.
SELECT c.channel_id FROM plant.archived_channel AS c WHERE c.day = $1 AND c.n IS NULL;

-- name: select_state
-- What installation $1 has archived: days, the last one, and those of which stored samples are not in the archive,
-- since they came after others were dropped.
SELECT count(*) AS days, max(a.day) AS last,
       count(*) FILTER (WHERE a.late OR a.dropped_at IS NOT NULL AND EXISTS (SELECT FROM plant.archived_channel AS c
                                                                         WHERE c.day = a.day AND c.n IS NULL)) AS late
FROM plant.archived_day AS a
WHERE a.installation = $1;

-- name: lock_packing
-- Excludes packing, deletions and retention until the transaction ends.
SELECT pg_advisory_xact_lock(7361023400153) FROM (SELECT set_config('lock_timeout', '30s', true) OFFSET 0) AS s;

-- name: upsert_archived_day
-- Day $1 of installation $2 is archived: $3 revision, $4 root, $5 location, $6 samples, $7 bytes, $8 amendments, as
-- read after $9.
INSERT INTO plant.archived_day AS a
    (day, installation, revision, root, location, samples, bytes, amendments, archived_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
ON CONFLICT (installation, day) DO UPDATE
SET revision = excluded.revision, root = excluded.root, archived_at = excluded.archived_at,
    location = excluded.location, samples = excluded.samples, bytes = excluded.bytes, amendments = excluded.amendments;

-- name: update_late
-- Whether day $1 of installation $2 is to be looked at again for what came. mark_late finds what came meanwhile.
UPDATE plant.archived_day AS a SET late = $3 WHERE a.day = $1 AND a.installation = $2 AND a.late <> $3;

-- name: upsert_archived_channels
-- Of day $1, installation $2: channels $3 int[] have $4 samples in each hour (24 numbers a channel, one after the
-- other; those of a channel are negative if some are not in the archive), as read after $6. $5:
-- the database has all of them.
INSERT INTO plant.archived_channel AS a (day, channel_id, installation, n, whole)
SELECT $1::date, c.channel_id, $2::int,
       CASE WHEN NOT d.deleted AND ($4::int[])[24 * c.ordinal - 23] >= 0
            THEN ($4::int[])[24 * c.ordinal - 23:24 * c.ordinal] END, $5::boolean
FROM unnest($3::int[]) WITH ORDINALITY AS c (channel_id, ordinal)
CROSS JOIN (SELECT EXISTS (SELECT FROM plant.event AS e
                           WHERE e.type = 'deleted' AND e.time >= $6::timestamptz
                             AND (e.detail ->> 'from')::timestamptz < ($1::date + 1)::timestamp AT TIME ZONE 'UTC'
                             AND (e.detail ->> 'to')::timestamptz > $1::date::timestamp AT TIME ZONE 'UTC'
                          ) AS deleted) AS d
ON CONFLICT (day, channel_id) DO UPDATE
SET n = excluded.n, installation = excluded.installation, whole = a.whole OR excluded.whole;

-- name: delete_archived_channels
-- Of day $1 and installation $3: channels $2 (NULL: all).
DELETE FROM plant.archived_channel AS a
WHERE a.day = $1 AND a.installation = $3 AND ($2::int[] IS NULL OR a.channel_id = ANY ($2::int[]));

-- name: insert_archived_event
-- The event of day $1 of installation $2, and how it was done: $3.
INSERT INTO plant.event (time, id, type, text, detail)
SELECT clock_timestamp(),
       hashtextextended(concat_ws(' ', a.archived_at::text, d.detail::text), 29) & 9223372036854775807, 'archived',
       format('%s, revision %s: %s samples in %s bytes', a.day, a.revision, a.samples, a.bytes), d.detail
FROM plant.archived_day AS a
CROSS JOIN LATERAL (SELECT jsonb_build_object('day', a.day, 'installation', a.installation, 'revision', a.revision,
                                              'root', encode(a.root, 'hex'), 'location', a.location,
                                              'samples', a.samples, 'bytes', a.bytes, 'how', $3::text) AS detail) AS d
WHERE a.day = $1 AND a.installation = $2;
