-- The contribution of a value to a sum; none (NULL) if it is too large.
CREATE OR REPLACE FUNCTION plant.rollup_weight(value float8) RETURNS float8
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN CASE WHEN abs(value) BETWEEN 1e-280 AND 1e280 THEN value WHEN abs(value) < 1e-280 THEN 0 END;
