-- The unit of the plant in a channel's name: the path without its last part.
CREATE OR REPLACE FUNCTION plant.unit_of(channel text) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE STRICT
    RETURN CASE WHEN position('/' IN channel) > 0 THEN regexp_replace(channel, '/[^/]*$', '') ELSE '' END;
COMMENT ON FUNCTION plant.unit_of(text) IS 'The plant unit that a channel belongs to: its name without the last part.';
