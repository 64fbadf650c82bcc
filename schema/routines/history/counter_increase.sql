-- By how much a counter has increased from one reading to the next. If it is lower, the counter was reset and started again from
-- 0, as Prometheus has it; if more than half of wraps_at is missing, it passed wraps_at and went on from its lowest number.
CREATE OR REPLACE FUNCTION plant.counter_increase(before float8, value float8, wraps_at float8) RETURNS float8
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN CASE WHEN value >= before THEN value - before
                WHEN plant.counter_wraps(before, value, wraps_at) THEN value + (wraps_at - before)
                WHEN value < before THEN greatest(value, 0) END;
