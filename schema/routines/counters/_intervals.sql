-- The buckets of a count, after checking the arguments: they start at from, and are step long; the last one ends at to.
-- Without a step: one.
CREATE OR REPLACE FUNCTION plant._intervals("from" timestamptz, "to" timestamptz, step interval)
RETURNS TABLE (since timestamptz, until timestamptz)
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog
AS $$
DECLARE
    most CONSTANT int := 1000000;
    length float8;
    every float8;
BEGIN
    IF "from" IS NULL OR "to" IS NULL OR NOT isfinite("from") OR NOT isfinite("to") OR "from" >= "to" THEN
        RAISE EXCEPTION 'no time from % to %', "from", "to"
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Bounds are finite times; from is earlier than to.';
    ELSIF step <= INTERVAL '0' OR date_part('month', step) <> 0 OR date_part('year', step) <> 0 THEN
        RAISE EXCEPTION 'step %', step
            USING ERRCODE = 'invalid_parameter_value',
                  HINT = 'A step is longer than 0 and has no months or years, whose length differs. '
                         'A day has 24 hours.';
    END IF;
    length := round(date_part('epoch', "to" - "from") * 1e6);
    every := least(length, coalesce(round(date_part('epoch', step) * 1e6), length));
    IF length / every > most THEN
        RAISE EXCEPTION '% intervals of % from % to %', ceil(length / every), step, "from", "to"
            USING ERRCODE = 'program_limit_exceeded',
                  HINT = format('At most %s intervals: a longer step, or a shorter time.', most);
    END IF;
    RETURN QUERY
    SELECT "from" + INTERVAL '1 microsecond' * (k.k * every),
           "from" + INTERVAL '1 microsecond' * least((k.k + 1) * every, length)
    FROM generate_series(0, ceil(length / every)::int - 1) AS k (k)
    ORDER BY k.k;
END
$$;
