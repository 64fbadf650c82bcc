-- The installation that owns a database, and where it runs.

-- name: select_tables
-- Whether the database has sources, and whether they belong to installations (since schema version 19).
SELECT to_regclass('plant.source') IS NOT NULL AS sources, to_regclass('plant.installation') IS NOT NULL AS installations;

-- name: select_installations
SELECT i.id, i.plant, i.registered_at FROM plant.installation AS i ORDER BY i.registered_at;

-- name: select_sources
-- Registered sources: channels, and whether the source is retired.
SELECT s.name, count(c.id) AS channels, s.retired_at IS NOT NULL AS retired
FROM plant.source AS s
LEFT JOIN plant.channel AS c ON c.source_id = s.id
GROUP BY s.id
ORDER BY s.retired_at IS NOT NULL, s.name;

-- name: select_mismatched_ids
-- Names and ids of a registry that differ from the database: $1 names, $2 ids of sources; $3 names, $4 ids of channels.
SELECT n.name, n.id, (SELECT o.id FROM plant.source AS o WHERE o.name = n.name) AS here
FROM unnest($1::text[], $2::int[]) AS n (name, id)
WHERE NOT EXISTS (SELECT FROM plant.source AS s WHERE s.id = n.id AND s.name = n.name)
UNION ALL
SELECT n.name, n.id, (SELECT o.id FROM plant.channel AS o WHERE o.name = n.name)
FROM unnest($3::text[], $4::int[]) AS n (name, id)
WHERE NOT EXISTS (SELECT FROM plant.channel AS c WHERE c.id = n.id AND c.name = n.name);

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

-- name: upsert_installation
-- $1 id, $2 name of the plant.
INSERT INTO plant.installation AS i (id, plant) VALUES ($1, $2)
ON CONFLICT (id) DO UPDATE SET plant = excluded.plant WHERE i.plant <> excluded.plant;

-- name: assign_installation
-- Makes installation $1 the owner of everything registered. Settings of the database itself (NULL) keep no owner.
WITH sources AS (
    UPDATE plant.source AS s SET installation_id = $1 WHERE s.installation_id IS DISTINCT FROM $1
),
classes AS (
    UPDATE plant.retention_class AS r SET installation_id = $1 WHERE r.installation_id IS DISTINCT FROM $1
)
UPDATE plant.setting AS s SET installation_id = $1 WHERE s.installation_id <> $1;

-- name: delete_other_installations
-- Deletes the installations that installation $1 took over from.
DELETE FROM plant.installation AS i WHERE i.id <> $1;

-- name: insert_takeover_event
-- $1: description of what was taken over.
INSERT INTO plant.event (time, id, type, text, detail)
SELECT t.at, hashtextextended(concat_ws(' ', t.at::text, $1::text), 19) & 9223372036854775807, 'taken_over', $1,
       jsonb_build_object('by', session_user)
FROM (SELECT clock_timestamp()) AS t (at);

-- name: has_presence_table
-- Since schema version 30.
SELECT to_regclass('plant.presence') IS NOT NULL;

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
