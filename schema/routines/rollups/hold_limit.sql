-- How long a value holds at most. 24 hours, not one day: a day in the session's time zone may have 23 hours.
CREATE OR REPLACE FUNCTION plant.hold_limit() RETURNS interval
    LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN INTERVAL '24 hours';
