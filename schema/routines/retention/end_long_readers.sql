-- A reader's statement_timeout is 5 minutes, but the session can override it; this function ends such sessions. A
-- session that is idle in a transaction holds locks and old snapshots, which block schema upgrades, dropping chunks and
-- VACUUM. plantlog's own checks take longer than 5 minutes, but end long before these limits.
CREATE OR REPLACE FUNCTION plant.end_long_readers(
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
COMMENT ON FUNCTION plant.end_long_readers IS
    'End the sessions of readers that exceed the time limits, and those with the process ids large; '
    'returns their number.';
REVOKE EXECUTE ON FUNCTION plant.end_long_readers FROM PUBLIC;
GRANT EXECUTE ON FUNCTION plant.end_long_readers TO plant_maintenance, plant_owner;
