-- The unit of the plant in a channel's name: the path without its last part. A name of one part is its own unit.
-- Inlined, this is the expression of the index channel_unit.
CREATE OR REPLACE FUNCTION plant.unit_of(channel text) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE STRICT
    RETURN regexp_replace(channel, '/[^/]*$', '');
COMMENT ON FUNCTION plant.unit_of(text) IS
    'The plant unit that a channel belongs to: its name without the last part, or all of a name of one part.';
