-- How long a writer may hold a minute open.
CREATE OR REPLACE FUNCTION plant.open_minute_limit() RETURNS interval
    LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN INTERVAL '3 minutes';
