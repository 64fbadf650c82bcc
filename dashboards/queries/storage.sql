-- 5 Storage: from the catalog alone; no table is read to be counted.

-- name: database_size
SELECT pg_database_size(current_database()) AS "Database";
