-- A process that is no collector started. Collectors record theirs as events of their sources. Only the maintenance
-- process records them.
CREATE OR REPLACE FUNCTION plant.record_restart(at timestamptz, process text, installation uuid) RETURNS void
LANGUAGE sql
SECURITY DEFINER
SET search_path = pg_catalog
AS $$
INSERT INTO plant.event (time, id, type, detail)
SELECT at, hashtextextended(concat_ws(' ', at, process, installation), 12) & 9223372036854775807, 'restart',
       jsonb_build_object('process', process, 'installation', installation)
ON CONFLICT (time, id) DO NOTHING
$$;
COMMENT ON FUNCTION plant.record_restart IS 'Record an event of type restart: a process that is no collector started.';
REVOKE EXECUTE ON FUNCTION plant.record_restart FROM PUBLIC;
GRANT EXECUTE ON FUNCTION plant.record_restart TO plant_maintenance, plant_owner;
