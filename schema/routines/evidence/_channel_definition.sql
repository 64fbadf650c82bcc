-- The definition of a channel, with the name of its source, as one flat object, without past retirements.
CREATE OR REPLACE FUNCTION plant._channel_definition(c plant.channel) RETURNS jsonb
LANGUAGE sql STABLE
SET search_path = pg_catalog
AS $$
SELECT c.attributes || (to_jsonb(c) - ARRAY['id', 'source_id', 'attributes', 'retirements'])
       || jsonb_build_object('source', (SELECT s.name FROM plant.source AS s WHERE s.id = c.source_id))
$$;
