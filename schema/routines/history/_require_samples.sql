-- An error if retention dropped samples of a channel with from <= time < to: what is computed without them looks like an
-- answer.
CREATE OR REPLACE FUNCTION plant._require_samples(channel int, "from" timestamptz, "to" timestamptz) RETURNS void
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog
AS $$
DECLARE
    lacks tstzmultirange := '{}';
BEGIN
    IF "from" < "to" AND isfinite("from") AND isfinite("to") THEN
        lacks := plant.minutes_without_samples(channel, tstzmultirange(tstzrange("from", "to")));
    END IF;
    IF lacks <> '{}' THEN
        RAISE EXCEPTION 'channel %: samples between % and % are not in the database', channel, lower(lacks), upper(lacks)
            USING ERRCODE = 'no_data_found',
                  HINT = 'Retention dropped them. If they are archived, `plantlog sql` and `plantlog ask` read them.';
    END IF;
END
$$;
