-- The configurations that were applied.

-- name: select_newest
-- Newest revision of installation $1 and member $2 (NULL: no pair).
SELECT r.revision, r.file, r.files
FROM plant.config_revision AS r
JOIN plant.installation AS i ON i.number = r.installation
WHERE i.id = $1 AND r.member IS NOT DISTINCT FROM $2::int
ORDER BY r.revision DESC
LIMIT 1;

-- name: select_missing
-- Those of the digests $1 text[] whose files are not kept yet.
SELECT DISTINCT n.sha256
FROM unnest($1::text[]) AS n (sha256)
WHERE NOT EXISTS (SELECT FROM plant.config_file AS f WHERE f.sha256 = n.sha256);

-- name: insert_file
-- $1 SHA-256, $2 content.
INSERT INTO plant.config_file (sha256, content) VALUES ($1, $2);

-- name: insert_revision
-- The next revision of installation $1, and its event. $2 account, $3 sudo's user, $4 host, $5 command, $6 member; $7
-- added, $8 moved, $9 changed, $10 retired channels; $11 name of plant.toml, $12 its files.
WITH applied AS (
    INSERT INTO plant.config_revision
        (installation, revision, applied_at, account, sudo_user, host, command, member, added, moved, changed, retired,
         file, files)
    SELECT i.number, coalesce(max(r.revision), 0) + 1, clock_timestamp(), $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12
    FROM plant.installation AS i
    LEFT JOIN plant.config_revision AS r ON r.installation = i.number
    WHERE i.id = $1
    GROUP BY i.number
    RETURNING *
),
recorded AS (
    INSERT INTO plant.event (time, id, type, text, detail)
    SELECT a.applied_at, hashtextextended(concat_ws(' ', a.applied_at::text, d.detail::text), 23) & 9223372036854775807,
           'config_applied',
           format('revision %s by %s: %s added, %s moved, %s changed, %s retired', a.revision,
                  concat_ws(' as ', a.sudo_user, a.account), a.added, a.moved, a.changed, a.retired),
           d.detail
    FROM applied AS a
    CROSS JOIN LATERAL (SELECT to_jsonb(a) - 'applied_at' AS detail) AS d
)
SELECT a.revision FROM applied AS a;

-- name: select_revisions
-- The revisions of installation $1, newest first: $2 int at most (NULL: all).
SELECT r.revision AS number, r.applied_at, r.account, r.sudo_user, r.host, r.command, r.member, r.added, r.moved,
       r.changed, r.retired, r.file, r.files
FROM plant.config_revision AS r
JOIN plant.installation AS i ON i.number = r.installation
WHERE i.id = $1
ORDER BY r.revision DESC
LIMIT $2;

-- name: select_files
-- Contents by digest: $1 text[].
SELECT f.sha256, f.content FROM plant.config_file AS f WHERE f.sha256 = ANY ($1::text[]);
