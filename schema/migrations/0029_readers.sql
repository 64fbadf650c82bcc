-- What a reader's session can lift is ended from outside, sooner and by more than time.

-- Its sessions, of whatever kind.
CREATE FUNCTION plant.reader_sessions() RETURNS TABLE (pid int, active_since timestamptz, idle_since timestamptz, xact_start timestamptz)
LANGUAGE sql SECURITY DEFINER
SET search_path = pg_catalog
AS $$
SELECT a.pid, CASE WHEN a.state = 'active' THEN a.query_start END,
       CASE WHEN a.state LIKE 'idle in transaction%' THEN a.state_change END, a.xact_start
FROM pg_stat_activity AS a
WHERE a.datname = current_database() AND a.leader_pid IS NULL AND a.pid <> pg_backend_pid()
  AND pg_has_role(a.usesysid, 'plant_reader', 'MEMBER')
  AND NOT pg_has_role(a.usesysid, 'plant_ingest', 'MEMBER') AND NOT pg_has_role(a.usesysid, 'plant_owner', 'MEMBER')
$$;
COMMENT ON FUNCTION plant.reader_sessions IS 'Sessions of readers: since when a statement goes on, or a transaction waits for its next one.';

-- What waits in a transaction keeps locks and old rows: a schema to be upgraded, chunks to be dropped and VACUUM wait for it.
DROP FUNCTION plant.end_long_readers(interval, interval);
CREATE FUNCTION plant.end_long_readers(
    statement interval DEFAULT '15 minutes', transaction interval DEFAULT '1 hour', idle interval DEFAULT '5 minutes',
    large int[] DEFAULT '{}'
)
RETURNS int
LANGUAGE sql SECURITY DEFINER
SET search_path = pg_catalog
AS $$
SELECT count(pg_terminate_backend(r.pid))::int
FROM plant.reader_sessions() AS r
WHERE r.active_since < clock_timestamp() - statement OR r.xact_start < clock_timestamp() - transaction
   OR r.idle_since < clock_timestamp() - idle OR r.pid = ANY (large)
$$;
COMMENT ON FUNCTION plant.end_long_readers IS 'End the sessions of readers that lifted their time limit, and those of large; returns how many.';
REVOKE EXECUTE ON FUNCTION plant.reader_sessions, plant.end_long_readers FROM PUBLIC;
GRANT EXECUTE ON FUNCTION plant.reader_sessions, plant.end_long_readers TO plant_maintenance, plant_owner;

-- TimescaleDB's own jobs: a reader's would run where no limit of connections reaches.
DO $$
DECLARE
    job regprocedure;
BEGIN
    FOR job IN SELECT p.oid FROM pg_proc AS p
               WHERE p.pronamespace = 'public'::regnamespace AND p.proname IN ('add_job', 'alter_job', 'run_job', 'delete_job')
    LOOP
        EXECUTE format('REVOKE EXECUTE ON ROUTINE %s FROM PUBLIC', job);
        EXECUTE format('GRANT EXECUTE ON ROUTINE %s TO plant_owner, CURRENT_USER', job);
    END LOOP;
END
$$;
