-- Group roles, their privileges on all tables, and the functions that only they may call. Runs before tables/ in a new
-- database. `plantlog up` creates the logins; each is a member of one of these roles.
--
--   plant_owner        everything except changing seals
--   plant_ingest       the collectors' writer: adds rows and changes states
--   plant_reader       dashboards and people: reads
--   plant_maintenance  retention, statistics and trimming: cannot change samples, events, seals or settings directly,
--                      and drops data only as retention allows (compression and seals need the owner)

CREATE SCHEMA IF NOT EXISTS plant;

DO $$
DECLARE
    role text;
BEGIN
    FOREACH role IN ARRAY ARRAY['plant_owner', 'plant_ingest', 'plant_reader', 'plant_maintenance'] LOOP
        IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = role) THEN
            BEGIN
                EXECUTE format('CREATE ROLE %I NOLOGIN', role);
            EXCEPTION WHEN duplicate_object OR unique_violation THEN
                NULL; -- roles are shared by all databases of the server: another migration has just created it
            END;
        END IF;
    END LOOP;
END
$$;

REVOKE ALL ON SCHEMA plant FROM PUBLIC;
GRANT USAGE ON SCHEMA plant TO plant_owner, plant_ingest, plant_reader, plant_maintenance;

-- All of them can read every table and view that is created from here on. MAINTAIN is for ANALYZE.
ALTER DEFAULT PRIVILEGES IN SCHEMA plant GRANT SELECT ON TABLES TO plant_ingest, plant_reader;
ALTER DEFAULT PRIVILEGES IN SCHEMA plant GRANT SELECT, MAINTAIN ON TABLES TO plant_maintenance;

-- A reader must not disturb others. It can override its own settings (statement_timeout,
-- default_transaction_read_only). Therefore it is limited by revoked functions, by limits that only a superuser sets
-- (section reader_limits of queries/migrate.sql), and by plant.end_long_readers, which ends its sessions.

-- Advisory locks serialize migration, registration, sealing, packing and retention. (Unlocking remains allowed:
-- connection pools unlock every connection that is returned.) With large objects and WAL messages, a reader could write
-- data. Only a superuser can revoke these functions; otherwise the statements give warnings, and `plantlog up` lists
-- what remains allowed. Other users of this database need explicit grants for them.
DO $$
DECLARE
    taken record;
BEGIN
    FOR taken IN
        SELECT p.oid::regprocedure AS name, p.proname LIKE '%advisory%' AS locks
        FROM pg_proc AS p
        WHERE p.pronamespace = 'pg_catalog'::regnamespace
          AND (p.proname ~ '^pg_(try_)?advisory_(xact_)?lock' OR p.proname ~ '^(lo_.*|loread|lowrite)$'
               OR p.proname = 'pg_logical_emit_message')
    LOOP
        EXECUTE format('REVOKE EXECUTE ON FUNCTION %s FROM PUBLIC', taken.name);
        IF taken.locks THEN
            EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO plant_owner, plant_ingest, plant_maintenance, CURRENT_USER',
                           taken.name);
        END IF;
    END LOOP;
    EXECUTE format('REVOKE TEMPORARY ON DATABASE %I FROM PUBLIC', current_database());
    -- The writer stages rows that may conflict in a temporary table.
    EXECUTE format('GRANT TEMPORARY ON DATABASE %I TO plant_ingest', current_database());
END
$$;

-- TimescaleDB's jobs: the connection limit does not apply to them, so a reader must not create any.
DO $$
DECLARE
    job regprocedure;
BEGIN
    FOR job IN SELECT p.oid FROM pg_proc AS p
               WHERE p.pronamespace = 'public'::regnamespace
                 AND p.proname IN ('add_job', 'alter_job', 'run_job', 'delete_job')
    LOOP
        EXECUTE format('REVOKE EXECUTE ON ROUTINE %s FROM PUBLIC', job);
        EXECUTE format('GRANT EXECUTE ON ROUTINE %s TO plant_owner, CURRENT_USER', job);
    END LOOP;
END
$$;
