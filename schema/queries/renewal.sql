-- Keeps the routines and views of the database equal to the files of schema/routines.

-- name: select_digests
-- File name → SHA-256 of the text last run.
SELECT split_part(s.key, '/', 2) AS name, s.value AS sha256 FROM plant.setting AS s WHERE s.key LIKE 'routine/%';

-- name: select_names
-- Names of the views and routines.
SELECT c.relname AS name FROM pg_class AS c WHERE c.relnamespace = 'plant'::regnamespace AND c.relkind = 'v'
UNION
SELECT p.proname FROM pg_proc AS p WHERE p.pronamespace = 'plant'::regnamespace;

-- name: select_definitions
-- The view and every overload of the routine named $1, each with the transaction that last wrote it.
SELECT 'view' AS definition, r.xmin::text
FROM pg_rewrite AS r
JOIN pg_class AS c ON c.oid = r.ev_class
WHERE c.relnamespace = 'plant'::regnamespace AND c.relkind = 'v' AND c.relname = $1
UNION ALL
SELECT p.oid::text, p.xmin::text
FROM pg_proc AS p
WHERE p.pronamespace = 'plant'::regnamespace AND p.proname = $1;

-- name: format_drops
-- DROP statements, in order, for the view and every overload of the routines named $1. Each is preceded by those for
-- the views, routines and triggers of the files named $2 that depend on it.
-- A trigger belongs to the file of its function.
WITH RECURSIVE
object AS (
    SELECT c.tableoid AS class, c.oid, c.relname AS name, format('DROP VIEW %s', c.oid::regclass) AS statement
    FROM pg_class AS c
    WHERE c.relnamespace = 'plant'::regnamespace AND c.relkind = 'v'
    UNION ALL
    SELECT p.tableoid, p.oid, p.proname,
           format('DROP %s %s', CASE p.prokind WHEN 'p' THEN 'PROCEDURE' ELSE 'FUNCTION' END, p.oid::regprocedure)
    FROM pg_proc AS p
    WHERE p.pronamespace = 'plant'::regnamespace
    UNION ALL
    SELECT t.tableoid, t.oid, p.proname, format('DROP TRIGGER %I ON %s', t.tgname, t.tgrelid::regclass)
    FROM pg_trigger AS t
    JOIN pg_class AS c ON c.oid = t.tgrelid
    JOIN pg_proc AS p ON p.oid = t.tgfoid
    WHERE c.relnamespace = 'plant'::regnamespace AND p.pronamespace = 'plant'::regnamespace AND NOT t.tgisinternal
),
dependency AS ( -- a view depends on what its rule reads; a routine that takes or returns its rows, on their type
    SELECT coalesce(r.ev_class, d.objid) AS oid,
           CASE WHEN r.oid IS NULL THEN d.classid ELSE 'pg_class'::regclass END AS class,
           coalesce(t.typrelid, d.refobjid) AS on_oid,
           CASE WHEN t.oid IS NULL THEN d.refclassid ELSE 'pg_class'::regclass END AS on_class
    FROM pg_depend AS d
    LEFT JOIN pg_rewrite AS r ON d.classid = 'pg_rewrite'::regclass AND r.oid = d.objid
    LEFT JOIN pg_type AS t ON d.refclassid = 'pg_type'::regclass AND t.oid = d.refobjid AND t.typrelid <> 0
),
dropped (class, oid, depth) AS (
    SELECT o.class, o.oid, 0 FROM object AS o WHERE o.name = ANY ($1::name[])
    UNION ALL
    SELECT o.class, o.oid, d.depth + 1
    FROM dropped AS d
    JOIN dependency AS b ON (b.on_class, b.on_oid) = (d.class, d.oid)
    JOIN object AS o ON (o.class, o.oid) = (b.class, b.oid)
    WHERE o.name = ANY ($2::name[])
) CYCLE class, oid SET again USING path -- a view's rule depends on the view
SELECT o.name, o.statement
FROM object AS o
JOIN dropped AS d ON (d.class, d.oid) = (o.class, o.oid)
GROUP BY o.class, o.oid, o.name, o.statement
ORDER BY max(d.depth) FILTER (WHERE NOT d.again) DESC;

-- name: upsert_digest
-- $1 name, $2 SHA-256.
INSERT INTO plant.setting (key, value) VALUES ('routine/' || $1::text, $2)
ON CONFLICT (key) DO UPDATE SET value = excluded.value;

-- name: delete_digests
DELETE FROM plant.setting AS s WHERE s.key IN (SELECT 'routine/' || n.name FROM unnest($1::text[]) AS n (name));
