-- Start of a day (UTC).
CREATE OR REPLACE FUNCTION plant.midnight(day date) RETURNS timestamptz
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN day::timestamp AT TIME ZONE 'UTC';
