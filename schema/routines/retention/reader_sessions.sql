-- Sessions of logins that may only read.
CREATE OR REPLACE FUNCTION plant.reader_sessions()
    RETURNS TABLE (pid int, active_since timestamptz, idle_since timestamptz, xact_start timestamptz)
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
COMMENT ON FUNCTION plant.reader_sessions IS
    'Sessions of readers, with the start of the running statement or of the idle time in a transaction.';
REVOKE EXECUTE ON FUNCTION plant.reader_sessions FROM PUBLIC;
GRANT EXECUTE ON FUNCTION plant.reader_sessions TO plant_maintenance, plant_owner;
