-- The migration runner and the creation of logins. Sections format_… return a statement to execute.

-- name: lock_migration
-- Waits while another session migrates; the end of the session releases the lock.
SELECT pg_advisory_lock(7361023400152);

-- name: select_extension
SELECT e.default_version AS available, e.installed_version AS installed,
       current_setting('shared_preload_libraries') LIKE '%timescaledb%' AS preloaded
FROM pg_available_extensions AS e
WHERE e.name = 'timescaledb';

-- name: create_extension
CREATE EXTENSION IF NOT EXISTS timescaledb SCHEMA public;

-- name: update_extension
-- Must be the first statement of its session.
ALTER EXTENSION timescaledb UPDATE;

-- name: schema_exists
-- Whether the database has plantlog's schema.
SELECT to_regclass('plant.migration') IS NOT NULL;

-- name: select_migrations
SELECT m.version, m.name, m.sha256 FROM plant.migration AS m ORDER BY m.version;

-- name: insert_migration
INSERT INTO plant.migration (version, name, sha256) VALUES ($1, $2, $3);

-- name: select_logins
-- The existing roles among $1, with their comment: the mark of the owning installation.
SELECT r.rolname::text AS login, coalesce(shobj_description(r.oid, 'pg_authid'), '') AS comment
FROM pg_roles AS r
WHERE r.rolname = ANY ($1::text[]);

-- name: format_login
-- Create the login $1 with password $2, or set its password.
SELECT format(
    CASE WHEN EXISTS (SELECT FROM pg_roles WHERE rolname = $1::text) THEN 'ALTER' ELSE 'CREATE' END
    || ' ROLE %I LOGIN PASSWORD %L', $1::text, $2::text);

-- name: format_grant
-- Make login $1 a member of group role $2.
SELECT format('GRANT %I TO %I', $2::text, $1::text);

-- name: format_comment
-- Mark the login $1 with its owner $2.
SELECT format('COMMENT ON ROLE %I IS %L', $1::text, $2::text);

-- name: format_lock
-- Lock the logins that are marked with $1, and mark them with $2.
SELECT format('ALTER ROLE %1$I NOLOGIN; COMMENT ON ROLE %1$I IS %2$L', r.rolname, $2::text) AS statement
FROM pg_roles AS r
WHERE shobj_description(r.oid, 'pg_authid') = $1;

-- name: format_reader_limits
-- Settings and limits of the reader's login $1; an empty text if they are in force. Its sessions cannot raise the
-- limits of connections and (if we are a superuser) temporary files. Settings that the login made for itself are reset.
-- jit: it takes 30 s of a query over 3,600 chunks, the rest 0.8 s.
WITH
required AS (
    SELECT s.setting
    FROM unnest(ARRAY['default_transaction_read_only=on', 'statement_timeout=5min', 'search_path=plant, public',
                      'jit=off', 'temp_file_limit=2GB']) AS s (setting)
    WHERE s.setting NOT LIKE 'temp_file_limit%' OR has_parameter_privilege('temp_file_limit', 'SET')
)
SELECT CASE WHEN EXISTS (SELECT FROM pg_db_role_setting AS d WHERE d.setrole = r.oid AND d.setdatabase <> 0)
            THEN format('ALTER ROLE %I IN DATABASE %I RESET ALL;', r.rolname, current_database()) ELSE '' END
       || CASE WHEN r.rolconfig @> w.settings AND r.rolconfig <@ w.settings THEN ''
               ELSE format('ALTER ROLE %I RESET ALL;', r.rolname) || w.statements END
       || CASE WHEN r.rolconnlimit = 30 THEN '' ELSE format('ALTER ROLE %I CONNECTION LIMIT 30;', r.rolname) END
FROM pg_roles AS r
CROSS JOIN LATERAL (
    SELECT array_agg(w.setting) AS settings,
           string_agg(format('ALTER ROLE %I SET %s = %s;', r.rolname, split_part(w.setting, '=', 1),
                             CASE WHEN w.setting LIKE 'search_path%' THEN split_part(w.setting, '=', 2)
                                  ELSE quote_literal(split_part(w.setting, '=', 2)) END), '') AS statements
    FROM required AS w
) AS w
WHERE r.rolname = $1::text;

-- name: database_exists
SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1);

-- name: format_create_database
-- Create database $1.
SELECT format('CREATE DATABASE %I', $1::text);
