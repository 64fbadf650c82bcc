-- The number of planes that integers from 0 to range need; NULL if more than four.
CREATE OR REPLACE FUNCTION plant.planes(range float8) RETURNS int
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN CASE WHEN range = 0 THEN 0 WHEN range < 256 THEN 1 WHEN range < 65536 THEN 2
                WHEN range < 16777216 THEN 3 WHEN range < 4294967296 THEN 4 END;
