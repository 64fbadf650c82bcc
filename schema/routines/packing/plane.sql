-- Byte number place (0 is the lowest) of integers, minus 128; NULL counts as 0.
CREATE OR REPLACE FUNCTION plant.plane(numbers float8[], place int) RETURNS "char"[]
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN ARRAY(SELECT (((coalesce(u.number, 0)::int8 >> (8 * place)) & 255) - 128)::int::"char"
                 FROM unnest(numbers) AS u (number));
