-- The kind of a channel that has numbers; an error for others.
CREATE OR REPLACE FUNCTION plant._kind(channel int) RETURNS text
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog
AS $$
DECLARE
    kind CONSTANT text := (SELECT c.kind FROM plant.channel AS c WHERE c.id = channel);
BEGIN
    IF kind IS NULL OR kind = 'text' THEN
        RAISE EXCEPTION 'channel %: %', channel, CASE WHEN kind IS NULL THEN 'does not exist' ELSE 'its values are texts' END
            USING ERRCODE = 'invalid_parameter_value',
                  HINT = 'SELECT id, name, kind FROM plant.channel lists the channels; values of text channels are events.';
    END IF;
    RETURN kind;
END
$$;
