-- Start of the day (UTC) that contains a time.
CREATE OR REPLACE FUNCTION plant.day_of(at timestamptz) RETURNS timestamptz
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN date_bin(INTERVAL '24 hours', at, TIMESTAMPTZ '2000-01-01 00:00:00+00');
