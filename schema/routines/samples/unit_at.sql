-- The unit that a channel's values had at a time.
CREATE OR REPLACE FUNCTION plant.unit_at(channel int, at timestamptz) RETURNS text
LANGUAGE sql STABLE PARALLEL SAFE
SET search_path = pg_catalog
AS $$
SELECT v.unit
FROM plant.channel_version AS v
WHERE v.channel_id = channel AND v.valid_from <= at
ORDER BY v.valid_from DESC
LIMIT 1
$$;
COMMENT ON FUNCTION plant.unit_at IS 'Unit of a channel''s values at a time.';
