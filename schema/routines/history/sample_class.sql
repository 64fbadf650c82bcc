-- The quality of a sample for calculations: 0 Good, 1 Uncertain, 2 Bad. NaN is Bad, and so are infinities and values whose
-- sums would be out of range for float8.
CREATE OR REPLACE FUNCTION plant.sample_class(value float8, status int) RETURNS int
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN CASE WHEN status < 0 OR NOT abs(value) <= 1e280 THEN 2 WHEN status >= 1 << 30 THEN 1 ELSE 0 END;
