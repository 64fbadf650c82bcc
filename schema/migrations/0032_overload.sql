-- Overload is a state of the appliance: its begin (text "overloaded") and its end (text "good") are events of type overload,
-- with what was measured; those of an end are the worst of each. Only the process maintenance, which measures, tells them.
CREATE FUNCTION plant.record_overload(at timestamptz, said text, detail jsonb) RETURNS void
LANGUAGE sql
SECURITY DEFINER
SET search_path = pg_catalog
AS $$
INSERT INTO plant.event (time, id, type, text, detail)
SELECT at, hashtextextended(concat_ws(' ', at, said, detail), 11) & 9223372036854775807, 'overload', said, detail
ON CONFLICT (time, id) DO NOTHING
$$;
COMMENT ON FUNCTION plant.record_overload IS 'Puts an event of type overload on record: when it began (overloaded) or ended (good), with its figures.';
REVOKE EXECUTE ON FUNCTION plant.record_overload FROM PUBLIC;
GRANT EXECUTE ON FUNCTION plant.record_overload TO plant_maintenance, plant_owner;
