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

-- name: login
-- A statement to make or renew the login $1 with password $2, a member of group role $3.
SELECT format(
    CASE WHEN EXISTS (SELECT FROM pg_roles WHERE rolname = $1::text) THEN 'ALTER' ELSE 'CREATE' END
    || ' ROLE %I LOGIN PASSWORD %L; GRANT %I TO %I;', $1::text, $2::text, $3::text, $1::text);

-- name: reader_limits
-- A statement: the reader's login $1 can neither write nor run for ever.
SELECT format('ALTER ROLE %I SET default_transaction_read_only = on; ALTER ROLE %I SET statement_timeout = ''5min'';'
              'ALTER ROLE %I SET search_path = plant, public;', $1::text, $1::text, $1::text);

-- name: database_exists
SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1);

-- name: create_database
-- A statement to make database $1.
SELECT format('CREATE DATABASE %I', $1::text);

-- name: drop_database
-- A statement to drop database $1, whoever is connected to it.
SELECT format('DROP DATABASE IF EXISTS %I WITH (FORCE)', $1::text);
