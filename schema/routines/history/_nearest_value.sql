-- The sample nearest to a time, the last one before it or (later) the first one after it, whose quality is at worst the
-- given one (good, uncertain, bad). Looks nearby first, because samples of packed hours are unpacked before they can be sorted.
CREATE OR REPLACE FUNCTION plant._nearest_value(channel int, at timestamptz, later boolean, worst text DEFAULT 'bad',
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
    beyond      CONSTANT timestamptz := at + INTERVAL '1 microsecond';
    span interval;
BEGIN
    PERFORM plant._kind(channel);
    IF worst_class IS NULL OR NOT coalesce(within > INTERVAL '0', false) OR at IS NULL OR NOT isfinite(at) THEN
        RAISE EXCEPTION '%: at %, worst %, within %', CASE WHEN later THEN 'value_after' ELSE 'value_before' END, at, worst, within
            USING ERRCODE = 'invalid_parameter_value',
                  HINT = 'at is a finite time, worst is good, uncertain or bad, within is longer than 0.';
    END IF;
    FOREACH span IN ARRAY ARRAY[INTERVAL '1 minute', INTERVAL '1 hour', within] LOOP
        span := least(span, within);
        RETURN QUERY
        SELECT s.time, s.value, s.status
        FROM plant.samples_between(ARRAY[channel], CASE WHEN later THEN beyond ELSE at - span END,
                                   CASE WHEN later THEN beyond + span ELSE at END) AS s
        WHERE plant.sample_class(s.value, s.status) <= worst_class
        ORDER BY CASE WHEN later THEN s.time END, s.time DESC LIMIT 1;
        EXIT WHEN FOUND OR span = within;
    END LOOP;
END
$$;
