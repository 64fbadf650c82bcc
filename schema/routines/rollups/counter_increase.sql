-- By how much a counter increased from one reading to the next, as core/counters.py has it: a lower reading is a reset
-- to 0, or a wrap if more than half of wraps_at is missing. NULL: there is no reading before.
CREATE OR REPLACE FUNCTION plant.counter_increase(before float8, value float8, wraps_at float8) RETURNS float8
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN CASE WHEN before IS NULL THEN NULL
                WHEN before - value > wraps_at / 2 AND before - value <= wraps_at THEN value + (wraps_at - before)
                WHEN value >= before THEN value - before
                ELSE greatest(value, 0) END;
