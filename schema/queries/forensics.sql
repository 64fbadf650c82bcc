-- What keeps the functions of schema/forensics in the database the same as the files.

-- name: known
-- File name → SHA-256 of the text that its function was made from.
SELECT substr(s.key, 11) AS name, s.value AS sha256 FROM plant.setting AS s WHERE s.key LIKE 'forensics/%';

-- name: drop
-- A statement: without every form of the function $1, whose parameters or columns may be others than before;
-- where there is none, one that does nothing.
SELECT coalesce(string_agg(format('DROP FUNCTION %s;', p.oid::regprocedure), ' '), 'SELECT')
FROM pg_proc AS p
WHERE p.pronamespace = 'plant'::regnamespace AND p.proname = $1;

-- name: record
INSERT INTO plant.setting (key, value) VALUES ('forensics/' || $1, $2)
ON CONFLICT (key) DO UPDATE SET value = excluded.value;

-- name: forget
DELETE FROM plant.setting AS s WHERE s.key = 'forensics/' || $1;
