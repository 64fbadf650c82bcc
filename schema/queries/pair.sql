-- What `up` asks and records about the members of a redundant pair.

-- name: has_tables
SELECT to_regclass('plant.member') IS NOT NULL;

-- name: select_members
-- Of installation $1.
SELECT m.member, m.folder, m.place, m.version, m.configuration::text AS configuration, m.seen_at, m.away,
       m.backlog_rows, date_part('epoch', clock_timestamp() - m.seen_at) AS age
FROM plant.member AS m
WHERE m.installation_id = $1
ORDER BY m.member;

-- name: select_pair_of
-- Where the members of another installation than $1 with plant $2 run.
SELECT i.id, m.member, m.place
FROM plant.installation AS i
JOIN plant.member AS m ON m.installation_id = i.id
WHERE i.id <> $1 AND i.plant = $2
ORDER BY m.member
LIMIT 1;

-- name: is_registered
SELECT EXISTS (SELECT FROM plant.installation AS i WHERE i.id = $1);

-- name: select_lease
-- Of installation $1; times in seconds from now.
SELECT l.member, l.token, date_part('epoch', l.expires_at - clock_timestamp()) AS expires,
       date_part('epoch', clock_timestamp() - l.taken_at) AS held
FROM plant.writer_lease AS l
WHERE l.installation_id = $1;

-- name: lock_pair
-- Two members begin one after the other.
SELECT FROM plant.installation AS i WHERE i.id = $1 FOR NO KEY UPDATE;

-- name: copy_gaps
-- The gaps of installation $1 become those of member $2, which was alone until now.
INSERT INTO plant.member_gap (source_id, channel_id, member, from_time, to_time, reason, detail, backfilled, revision)
SELECT g.source_id, g.channel_id, $2, g.from_time, g.to_time, g.reason, g.detail, g.backfilled_at IS NOT NULL,
       g.revision
FROM plant.gap AS g
JOIN plant.source AS s ON s.id = g.source_id
WHERE s.installation_id = $1 AND g.to_time IS DISTINCT FROM g.from_time
ON CONFLICT (source_id, channel_id, member, from_time) DO NOTHING;

-- name: record_away
-- Member $2 of installation $1 has no samples from $3 to $4 (NULL: it has none yet).
SELECT plant.member_away($1, $2, $3, $4);

-- name: describe_member
-- What member $2 of installation $1 runs: $3 place, $4 version, $5 configuration (JSON).
UPDATE plant.member AS m SET place = $3, version = $4, configuration = $5::text::jsonb
WHERE m.installation_id = $1 AND m.member = $2;

-- name: dissolve
-- Installation $1 is no pair any more. Its gaps stay.
WITH gaps AS (
    DELETE FROM plant.member_gap AS g USING plant.source AS s WHERE s.id = g.source_id AND s.installation_id = $1
),
lease AS (
    DELETE FROM plant.writer_lease AS l WHERE l.installation_id = $1
)
DELETE FROM plant.member AS m WHERE m.installation_id = $1;

-- name: select_status
-- The members of installation $1; times in seconds.
SELECT m.member, m.place, m.away OR m.seen_at < clock_timestamp() - INTERVAL '10 seconds' AS away, m.backlog_rows,
       date_part('epoch', clock_timestamp() - m.seen_at) AS age,
       coalesce(l.member = m.member AND l.expires_at > clock_timestamp(), false) AS writes,
       date_part('epoch', clock_timestamp() - l.taken_at) AS held
FROM plant.member AS m
LEFT JOIN plant.writer_lease AS l ON l.installation_id = m.installation_id
WHERE m.installation_id = $1
ORDER BY m.member;
