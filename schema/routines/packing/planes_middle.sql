-- The sum of the offsets of 128 that are subtracted in each plane.
CREATE OR REPLACE FUNCTION plant.planes_middle(planes int) RETURNS float8
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN CASE planes WHEN 0 THEN 0 WHEN 1 THEN 128 WHEN 2 THEN 32896 WHEN 3 THEN 8421504 ELSE 2155905152 END;
