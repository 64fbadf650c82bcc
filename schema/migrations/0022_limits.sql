-- What the reader may not do to others. Its own settings (statement_timeout, default_transaction_read_only) it can lift,
-- so the limits are what it may not call, what only a superuser sets (see section reader_limits of migrate.sql), and an
-- end from outside.

-- Advisory locks: migration, registration, sealing, packing and retention wait for each other by them. (Unlocking stays:
-- pools do it with each connection that they are given back.) Large objects and WAL messages: what a reader could leave
-- behind. Only a superuser can revoke them; elsewhere these statements warn, and `plantlog up` says what is open. Who else
-- shares this database has to be granted what he needs of them.
DO $$
DECLARE
    taken record;
BEGIN
    FOR taken IN
        SELECT p.oid::regprocedure AS name, p.proname LIKE '%advisory%' AS locks
        FROM pg_proc AS p
        WHERE p.pronamespace = 'pg_catalog'::regnamespace
          AND (p.proname ~ '^pg_(try_)?advisory_(xact_)?lock' OR p.proname ~ '^(lo_.*|loread|lowrite)$' OR p.proname = 'pg_logical_emit_message')
    LOOP
        EXECUTE format('REVOKE EXECUTE ON FUNCTION %s FROM PUBLIC', taken.name);
        IF taken.locks THEN
            EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO plant_owner, plant_ingest, plant_maintenance, CURRENT_USER', taken.name);
        END IF;
    END LOOP;
    EXECUTE format('REVOKE TEMPORARY ON DATABASE %I FROM PUBLIC', current_database());
END
$$;

-- A reader's statement_timeout is 5 minutes, and the session can lift it. plantlog's own checks take longer than that, and
-- end long before this.
CREATE FUNCTION plant.end_long_readers(statement interval DEFAULT '15 minutes', transaction interval DEFAULT '1 hour')
RETURNS int
LANGUAGE sql SECURITY DEFINER
SET search_path = pg_catalog
AS $$
SELECT count(pg_terminate_backend(a.pid))::int
FROM pg_stat_activity AS a
WHERE a.datname = current_database() AND a.backend_type = 'client backend' AND a.pid <> pg_backend_pid()
  AND pg_has_role(a.usesysid, 'plant_reader', 'MEMBER')
  AND NOT pg_has_role(a.usesysid, 'plant_ingest', 'MEMBER') AND NOT pg_has_role(a.usesysid, 'plant_owner', 'MEMBER')
  AND (a.state = 'active' AND a.query_start < clock_timestamp() - statement
       OR a.xact_start < clock_timestamp() - transaction)
$$;
COMMENT ON FUNCTION plant.end_long_readers IS 'End the sessions of readers that lifted their time limit; returns how many.';
REVOKE EXECUTE ON FUNCTION plant.end_long_readers FROM PUBLIC;
GRANT EXECUTE ON FUNCTION plant.end_long_readers TO plant_maintenance, plant_owner;
