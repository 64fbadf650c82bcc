-- The last sample before a time whose quality is at worst the given one (good, uncertain, bad). Looks nearby first,
-- because samples of packed hours are unpacked before they can be sorted.
CREATE OR REPLACE FUNCTION plant._value_before(channel int, at timestamptz, worst text DEFAULT 'bad',
                                               within interval DEFAULT '24 hours')
RETURNS TABLE ("time" timestamptz, value float8, status int)
LANGUAGE plpgsql STABLE ROWS 1
SET search_path = pg_catalog
SET plan_cache_mode = force_custom_plan
SET jit = off
SET max_parallel_workers_per_gather = 0
AS $$
DECLARE
    worst_class CONSTANT int := array_position(ARRAY['good', 'uncertain', 'bad'], worst) - 1;
    span interval;
BEGIN
    PERFORM plant._kind(channel);
    IF worst_class IS NULL OR NOT coalesce(within > INTERVAL '0', false) OR at IS NULL OR NOT isfinite(at) THEN
        RAISE EXCEPTION 'value_before: at %, worst %, within %', at, worst, within
            USING ERRCODE = 'invalid_parameter_value',
                  HINT = 'at is a finite time, worst is good, uncertain or bad, within is longer than 0.';
    END IF;
    FOREACH span IN ARRAY ARRAY[INTERVAL '1 minute', INTERVAL '1 hour', within] LOOP
        span := least(span, within);
        RETURN QUERY
        SELECT s.time, s.value, s.status
        FROM plant.samples_between(ARRAY[channel], at - span, at) AS s
        WHERE plant.sample_class(s.value, s.status) <= worst_class
        ORDER BY s.time DESC LIMIT 1;
        EXIT WHEN FOUND OR span = within;
    END LOOP;
END
$$;
