-- What the migration runner and the making of logins ask.

-- name: lock
-- One migration at a time, however many start at once; the session's end gives it back.
SELECT pg_advisory_lock(7361023400152);

-- name: unlock
SELECT pg_advisory_unlock(7361023400152);

-- name: available
SELECT e.default_version AS available, e.installed_version AS installed,
       current_setting('shared_preload_libraries') LIKE '%timescaledb%' AS preloaded
FROM pg_available_extensions AS e
WHERE e.name = 'timescaledb';

-- name: create_extension
CREATE EXTENSION IF NOT EXISTS timescaledb SCHEMA public;

-- name: update_extension
-- The first statement of its session.
ALTER EXTENSION timescaledb UPDATE;

-- name: applied_table
CREATE SCHEMA IF NOT EXISTS plant;
CREATE TABLE IF NOT EXISTS plant.migration (
    version    int PRIMARY KEY,
    name       text NOT NULL,
    sha256     text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- name: applied
SELECT m.version, m.name, m.sha256 FROM plant.migration AS m ORDER BY m.version;

-- name: record
INSERT INTO plant.migration (version, name, sha256) VALUES ($1, $2, $3);

-- name: logins
-- Those of $1 that there are, and whose they are said to be.
SELECT r.rolname::text AS login, coalesce(shobj_description(r.oid, 'pg_authid'), '') AS mark
FROM pg_roles AS r
WHERE r.rolname = ANY ($1::text[]);

-- name: login
-- A statement to make the login $1 with password $2, or to give it that.
SELECT format(
    CASE WHEN EXISTS (SELECT FROM pg_roles WHERE rolname = $1::text) THEN 'ALTER' ELSE 'CREATE' END
    || ' ROLE %I LOGIN PASSWORD %L', $1::text, $2::text);

-- name: member
-- A statement to make login $1 a member of group role $2.
SELECT format('GRANT %I TO %I', $2::text, $1::text);

-- name: mark
-- A statement to say whose the login $1 is: $2.
SELECT format('COMMENT ON ROLE %I IS %L', $1::text, $2::text);

-- name: reader_limits
-- A statement, empty where there is nothing to change: what the reader's login $1 begins with, and the limits that its
-- sessions can't lift. Its connections, and where we are a superuser the temporary files of each. What it set for itself
-- goes. jit: of a query over 3,600 chunks it takes 30 s, the rest 0.8 s.
WITH
wanted AS (
    SELECT s.setting
    FROM unnest(ARRAY['default_transaction_read_only=on', 'statement_timeout=5min', 'search_path=plant, public', 'jit=off',
                      'temp_file_limit=2GB']) AS s (setting)
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
    FROM wanted AS w
) AS w
WHERE r.rolname = $1::text;

-- name: database_exists
SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1);

-- name: create_database
-- A statement to make database $1.
SELECT format('CREATE DATABASE %I', $1::text);

-- name: drop_database
-- A statement to drop database $1, whoever is connected to it.
SELECT format('DROP DATABASE IF EXISTS %I WITH (FORCE)', $1::text);
