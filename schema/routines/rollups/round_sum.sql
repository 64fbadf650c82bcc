-- Round a sum of n terms, none larger than most. The sum of decimal readings is decimal; adding doubles misses it by
-- the rounding errors. The rounded sum is more accurate, and takes a third of the bytes in packed days.
CREATE OR REPLACE FUNCTION plant.round_sum(sum float8, terms float8, most float8) RETURNS float8
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN CASE WHEN abs(sum) < 9e9
                 AND abs(round(sum * 1e6) / 1e6 - sum) <= 2.3e-16 * terms * abs(sum) + 2.3e-16 * terms * most
                THEN round(sum * 1e6) / 1e6 + 0 ELSE sum END;
