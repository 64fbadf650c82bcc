-- Whether a lower reading of a counter means that its register wrapped: see counter_increase.
CREATE OR REPLACE FUNCTION plant.counter_wraps(before float8, value float8, wraps_at float8) RETURNS boolean
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN coalesce(before - value > wraps_at / 2 AND before - value <= wraps_at, false);
