-- The smallest k (0 to 9) for which value = integer / 10^k to the bit; NULL if there is none.
-- The limits keep the integer below 2^53 and exclude NaN and infinities.
CREATE OR REPLACE FUNCTION plant.decimals(value float8) RETURNS int
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN CASE
        WHEN NOT abs(value) < 9e15 THEN NULL
        WHEN value = 0 THEN CASE WHEN float8send(value) = '\x0000000000000000' THEN 0 END -- -0 is not an integer
        WHEN round(value) = value THEN 0
        WHEN NOT abs(value) < 9e13 THEN NULL
        WHEN round(value * 10) / 10 = value THEN 1
        WHEN round(value * 100) / 100 = value THEN 2
        WHEN NOT abs(value) < 9e11 THEN NULL
        WHEN round(value * 1000) / 1000 = value THEN 3
        WHEN round(value * 10000) / 10000 = value THEN 4
        WHEN NOT abs(value) < 9e9 THEN NULL
        WHEN round(value * 1e5) / 1e5 = value THEN 5
        WHEN round(value * 1e6) / 1e6 = value THEN 6
        WHEN NOT abs(value) < 9e6 THEN NULL
        WHEN round(value * 1e7) / 1e7 = value THEN 7
        WHEN round(value * 1e8) / 1e8 = value THEN 8
        WHEN round(value * 1e9) / 1e9 = value THEN 9
    END;
