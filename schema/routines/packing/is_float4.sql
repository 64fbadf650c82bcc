-- Whether the value is exactly a float4, as from a device with 32-bit floats.
CREATE OR REPLACE FUNCTION plant.is_float4(value float8) RETURNS boolean
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN CASE WHEN abs(value) BETWEEN 1e-30 AND 1e30 THEN value::float4::float8 = value
                ELSE float8send(value) = '\x0000000000000000' END;
