-- The number at which a counter starts again from 0, if its tag list says so; an error for channels that are no counters.
CREATE OR REPLACE FUNCTION plant._wraps_at(channel int) RETURNS float8
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog
AS $$
DECLARE
    kind CONSTANT text := plant._kind(channel);
BEGIN
    IF kind <> 'counter' THEN
        RAISE EXCEPTION 'channel % is %, no counter', channel, kind
            USING ERRCODE = 'invalid_parameter_value',
                  HINT = 'The column kind of the tag list says what a channel is; kind counter never decreases unless it is reset.';
    END IF;
    RETURN (SELECT (c.attributes ->> 'wraps_at')::float8 FROM plant.channel AS c WHERE c.id = channel);
END
$$;
