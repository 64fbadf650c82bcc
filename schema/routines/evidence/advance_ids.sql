-- Let the next ids be greater than those given: of a source, of a channel. Returns how many of both were not.
-- A database that was restored would otherwise give ids again that the state folder's files have for other channels.
CREATE OR REPLACE FUNCTION plant.advance_ids(last_source bigint, last_channel bigint) RETURNS int
LANGUAGE sql
SECURITY DEFINER
SET search_path = pg_catalog
AS $$
    SELECT count(setval(i.name, i.last))::int
    FROM (VALUES ('plant.source_id_seq'::regclass, last_source), ('plant.channel_id_seq'::regclass, last_channel))
        AS i (name, last)
    WHERE i.last > coalesce(pg_sequence_last_value(i.name), 0)
$$;
COMMENT ON FUNCTION plant.advance_ids IS
    'Never give the ids up to these to another source or channel. Does nothing if the next ids are greater already.';
REVOKE EXECUTE ON FUNCTION plant.advance_ids FROM PUBLIC;
GRANT EXECUTE ON FUNCTION plant.advance_ids TO plant_owner, plant_ingest;
