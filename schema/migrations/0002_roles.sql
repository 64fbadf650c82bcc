-- Who may do what. Logins are made by `plantlog up` and are members of one of these.

DO $$
DECLARE
    role text;
BEGIN
    FOREACH role IN ARRAY ARRAY['plant_owner', 'plant_ingest', 'plant_reader'] LOOP
        IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = role) THEN
            BEGIN
                EXECUTE format('CREATE ROLE %I NOLOGIN', role);
            EXCEPTION WHEN duplicate_object OR unique_violation THEN
                NULL; -- roles are the server's: another database's migration made it in this moment
            END;
        END IF;
    END LOOP;
END
$$;

REVOKE ALL ON SCHEMA plant FROM PUBLIC;
GRANT USAGE ON SCHEMA plant TO plant_owner, plant_ingest, plant_reader;
GRANT ALL ON ALL TABLES IN SCHEMA plant TO plant_owner;
GRANT SELECT ON ALL TABLES IN SCHEMA plant TO plant_ingest, plant_reader;
GRANT INSERT ON plant.samples_raw, plant.event, plant.gap, plant.ingest_batch TO plant_ingest;
GRANT UPDATE (state, state_since, reason) ON plant.source TO plant_ingest;
GRANT UPDATE (to_time, backfilled_at) ON plant.gap TO plant_ingest;
ALTER DEFAULT PRIVILEGES IN SCHEMA plant GRANT SELECT ON TABLES TO plant_ingest, plant_reader;

DO $$
BEGIN
    -- The conflict lane stages in a temporary table.
    EXECUTE format('GRANT TEMPORARY ON DATABASE %I TO plant_ingest', current_database());
END
$$;
