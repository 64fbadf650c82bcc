-- The mean or time-weighted mean of a bucket; NULL if it has no values or they are too large.
CREATE OR REPLACE FUNCTION plant.rollup_mean(sum float8, weight float8, min float8, max float8) RETURNS float8
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN CASE WHEN weight > 0 AND min >= -1e280 AND max <= 1e280 THEN sum / weight END;
