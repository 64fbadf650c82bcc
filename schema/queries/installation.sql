-- The installations that share a database, and where they run.

-- name: has_tables
SELECT to_regclass('plant.presence') IS NOT NULL;

-- name: select_installations
SELECT i.id, i.plant, p.place, date_part('epoch', clock_timestamp() - p.seen_at) AS age
FROM plant.installation AS i
LEFT JOIN plant.presence AS p ON p.installation_id = i.id
ORDER BY i.registered_at, i.id;

-- name: select_leader
-- The installation other than $1 whose settings apply to the database.
SELECT DISTINCT s.installation_id FROM plant.setting AS s WHERE s.installation_id <> $1;

-- name: select_sources
-- Sources of installation $1: channels, and whether the source is retired.
SELECT s.name, count(c.id) AS channels, s.retired_at IS NOT NULL AS retired
FROM plant.source AS s
LEFT JOIN plant.channel AS c ON c.source_id = s.id
WHERE s.installation_id = $1
GROUP BY s.id
ORDER BY s.retired_at IS NOT NULL, s.name;

-- name: select_taken_names
-- Sources $1 text[] and channels of pg_temp.configured whose names belong to another installation than $2.
SELECT 'source' AS kind, s.name, s.installation_id
FROM plant.source AS s
WHERE s.name = ANY ($1::text[]) AND s.installation_id <> $2
UNION ALL
SELECT 'channel', c.name, s.installation_id
FROM pg_temp.configured AS n
JOIN plant.channel AS c ON c.name = n.name
JOIN plant.source AS s ON s.id = c.source_id
WHERE s.installation_id <> $2
ORDER BY 1 DESC, 2;

-- name: select_unknown_ids
-- Names and ids of a registry that this database never had. Parameters as for select_mismatched_ids.
SELECT n.name, n.id, (SELECT o.id FROM plant.source AS o WHERE o.name = n.name) AS here
FROM unnest($1::text[], $2::int[]) AS n (name, id)
WHERE NOT EXISTS (SELECT FROM plant.source AS s WHERE s.id = n.id AND s.name = n.name)
UNION ALL
SELECT n.name, n.id, (SELECT o.id FROM plant.channel AS o WHERE o.name = n.name)
FROM unnest($3::text[], $4::int[]) AS n (name, id)
WHERE NOT EXISTS (SELECT FROM plant.channel AS c WHERE c.id = n.id)
   OR NOT EXISTS (SELECT FROM plant.channel_version AS v WHERE v.channel_id = n.id AND v.name = n.name);

-- name: take_over
-- Installation $1 becomes $2 with plant $3; what belongs to it follows.
WITH runs AS (
    UPDATE plant.job_run AS r SET installation_id = $2 WHERE r.installation_id = $1
)
UPDATE plant.installation AS i SET id = $2, plant = $3, registered_at = clock_timestamp() WHERE i.id = $1;

-- name: upsert_installation
-- $1 id, $2 name of the plant, $3 whether it seals, $4 where it archives (NULL: nowhere). Retention classes of the
-- first installation have plain names. It archives from the day on after the last one that retention has cut without an
-- archive.
INSERT INTO plant.installation AS i (id, plant, class_prefix, number, sealing, archive_from, archive_location)
VALUES ($1::uuid, $2,
        CASE WHEN EXISTS (SELECT FROM plant.installation) THEN left($1::uuid::text, 8) || ':' ELSE '' END,
        (SELECT coalesce(max(o.number), 0) + 1 FROM plant.installation AS o), $3,
        CASE WHEN $4::text IS NOT NULL THEN
            coalesce((SELECT (max(s.day) + 1)::timestamp AT TIME ZONE 'UTC'
                      FROM plant.installation AS o
                      JOIN plant.day_seal AS s ON s.chain = o.number
                      LEFT JOIN plant.archived_day AS a ON a.installation = s.chain AND a.day = s.day
                      WHERE o.id = $1 AND a.revision IS DISTINCT FROM s.revision
                        AND NOT EXISTS (SELECT FROM plant.day_seal AS n
                                        WHERE n.chain = s.chain AND n.day = s.day AND n.revision > s.revision)
                        AND s.day::timestamp AT TIME ZONE 'UTC'
                            < (SELECT max(d.until) FROM plant.dropped AS d WHERE d.what = 'raw')),
                     '-infinity') END, $4)
ON CONFLICT (id) DO UPDATE
SET plant = excluded.plant, sealing = excluded.sealing, archive_location = excluded.archive_location,
    archive_from = CASE WHEN $4 IS NOT NULL THEN coalesce(i.archive_from, excluded.archive_from) END
WHERE (i.plant, i.sealing) <> (excluded.plant, excluded.sealing) OR i.archive_location IS DISTINCT FROM $4;

-- name: update_notifies_from
-- Installation $1 sends notifications, or does not ($2): of alarms that are recorded from now on.
UPDATE plant.installation AS i
SET notifies_from = CASE WHEN $2::boolean THEN clock_timestamp() END
WHERE i.id = $1 AND (i.notifies_from IS NOT NULL) <> $2::boolean;

-- name: update_viewer_url
-- Where browsers find the viewer of installation $1.
UPDATE plant.installation AS i SET viewer_url = $2 WHERE i.id = $1 AND i.viewer_url IS DISTINCT FROM $2;

-- name: select_sealing
SELECT i.sealing FROM plant.installation AS i WHERE i.id = $1;

-- name: adopt
-- What has no installation yet becomes installation $1's. Settings of the database itself keep none.
WITH sources AS (
    UPDATE plant.source AS s SET installation_id = $1 WHERE s.installation_id IS NULL
)
UPDATE plant.retention_class AS r SET installation_id = $1 WHERE r.installation_id IS NULL;

-- name: insert_takeover_event
-- $1: description of what was taken over.
INSERT INTO plant.event (time, id, type, text, detail)
SELECT t.at, hashtextextended(concat_ws(' ', t.at::text, $1::text), 19) & 9223372036854775807, 'taken_over', $1,
       jsonb_build_object('by', session_user)
FROM (SELECT clock_timestamp()) AS t (at);

-- name: select_presence
-- Where installation $1 was last seen, and how many seconds ago.
SELECT p.place, p.folder, p.seen_at, date_part('epoch', clock_timestamp() - p.seen_at) AS age
FROM plant.presence AS p
WHERE p.installation_id = $1;

-- name: upsert_presence
-- Records installation $1 at place $2, folder $3, unless it was seen elsewhere in the last $4 seconds.
INSERT INTO plant.presence AS p (installation_id, place, folder)
SELECT i.id, $2, $3 FROM plant.installation AS i WHERE i.id = $1
ON CONFLICT (installation_id) DO UPDATE SET place = excluded.place, folder = excluded.folder, seen_at = excluded.seen_at
WHERE p.folder = excluded.folder OR p.place = excluded.place OR p.seen_at < clock_timestamp() - INTERVAL '1 second' * $4
RETURNING true;
