-- Overload is a state of the appliance. Its begin (text "overloaded") and its end (text "good") are events of type
-- overload with the measurements; at the end, the worst of each. Only the maintenance process,
-- which measures, records them.
CREATE OR REPLACE FUNCTION plant.record_overload(at timestamptz, message text, detail jsonb) RETURNS void
LANGUAGE sql
SECURITY DEFINER
SET search_path = pg_catalog
AS $$
INSERT INTO plant.event (time, id, type, text, detail)
SELECT at, hashtextextended(concat_ws(' ', at, message, detail), 11) & 9223372036854775807, 'overload', message, detail
ON CONFLICT (time, id) DO NOTHING
$$;
COMMENT ON FUNCTION plant.record_overload IS
    'Record an event of type overload: its beginning (overloaded) or end (good), with the measurements.';
REVOKE EXECUTE ON FUNCTION plant.record_overload FROM PUBLIC;
GRANT EXECUTE ON FUNCTION plant.record_overload TO plant_maintenance, plant_owner;
