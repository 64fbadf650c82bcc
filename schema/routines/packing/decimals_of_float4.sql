-- Like decimals, for a value that was rounded to float4 after the division; k is 0 to 6.
CREATE OR REPLACE FUNCTION plant.decimals_of_float4(value float8) RETURNS int
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN CASE
        WHEN NOT plant.is_float4(value) THEN NULL
        WHEN round(value) = value THEN CASE WHEN abs(value) < 9e15 THEN 0 END
        WHEN NOT abs(value) < 9e9 THEN NULL
        WHEN (round(value * 10) / 10)::float4 = value THEN 1
        WHEN (round(value * 100) / 100)::float4 = value THEN 2
        WHEN (round(value * 1000) / 1000)::float4 = value THEN 3
        WHEN (round(value * 1e4) / 1e4)::float4 = value THEN 4
        WHEN (round(value * 1e5) / 1e5)::float4 = value THEN 5
        WHEN (round(value * 1e6) / 1e6)::float4 = value THEN 6
    END;
