-- Samples of a channel with from <= time < to that the session was given, because only an archive has them. They are in
-- the setting plant.archived_CHANNEL: the ranges of which all samples were given, then times (µs since 1970), values
-- and status codes, as a multirange and three arrays between semicolons.
CREATE OR REPLACE FUNCTION plant.archived_samples(channel int, "from" timestamptz, "to" timestamptz)
RETURNS TABLE ("time" timestamptz, value float8, status int)
LANGUAGE plpgsql STABLE PARALLEL SAFE
SET search_path = pg_catalog
AS $$
DECLARE
    given CONSTANT text[] := string_to_array(current_setting('plant.archived_' || channel, true), ';');
    first int8;
    last  int8;
BEGIN
    IF given <> '{}' THEN
        first := extract(epoch FROM "from") * 1000000;
        last := extract(epoch FROM "to") * 1000000;
        RETURN QUERY
        SELECT plant.add_interval('epoch', s.us * INTERVAL '1 microsecond'), s.value, s.status
        FROM unnest(given[2]::int8[], given[3]::float8[], given[4]::int[]) AS s (us, value, status)
        WHERE s.us >= first AND s.us < last;
    END IF;
END
$$;
