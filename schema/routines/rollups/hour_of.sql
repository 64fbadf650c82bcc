-- Start of the hour (UTC) that contains a time.
CREATE OR REPLACE FUNCTION plant.hour_of(at timestamptz) RETURNS timestamptz
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN date_bin(INTERVAL '1 hour', at, TIMESTAMPTZ '2000-01-01 00:00:00+00');
