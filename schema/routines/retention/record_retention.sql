-- Record what retention dropped or could not drop.
CREATE OR REPLACE FUNCTION plant.record_retention(message text, detail jsonb) RETURNS void
LANGUAGE sql
SECURITY DEFINER
SET search_path = pg_catalog
AS $$
INSERT INTO plant.event (time, id, type, text, detail)
SELECT t.at, hashtextextended(concat_ws(' ', t.at, message, detail), 11) & 9223372036854775807, 'retention', message,
       detail
FROM (SELECT clock_timestamp() AS at) AS t
ON CONFLICT (time, id) DO NOTHING
$$;
REVOKE EXECUTE ON FUNCTION plant.record_retention FROM PUBLIC;
GRANT EXECUTE ON FUNCTION plant.record_retention TO plant_maintenance, plant_owner;
