-- What keeps the objects that schema/forensics and schema/editions make in the database the same as the files.

-- name: known
-- File name → SHA-256 of the text that was run, of the files of kind $1.
SELECT split_part(s.key, '/', 2) AS name, s.value AS sha256 FROM plant.setting AS s WHERE s.key LIKE $1 || '/%';

-- name: drop
-- A statement: without every form of the routine $1; where there is none, one that does nothing.
SELECT coalesce(string_agg(format('DROP ROUTINE %s;', p.oid::regprocedure), ' '), 'SELECT')
FROM pg_proc AS p
WHERE p.pronamespace = 'plant'::regnamespace AND p.proname = $1;

-- name: record
-- $1 kind, $2 name, $3 SHA-256.
INSERT INTO plant.setting (key, value) VALUES ($1 || '/' || $2, $3)
ON CONFLICT (key) DO UPDATE SET value = excluded.value;

-- name: forget
DELETE FROM plant.setting AS s WHERE s.key = $1 || '/' || $2;
