-- The smallest conventional bucket width (1 s, 5 s, 1 min …) that gives at most a number of buckets.
CREATE OR REPLACE FUNCTION plant.series_width(span interval, points int) RETURNS interval
LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT INTERVAL '1 second' * coalesce(
        (SELECT min(w.seconds)
         FROM unnest(ARRAY[0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300,
                           600, 900, 1800, 3600, 7200, 10800, 21600, 43200]::float8[]) AS w (seconds)
         WHERE w.seconds >= date_part('epoch', span) / points),
        86400 * ceil(date_part('epoch', span) / points / 86400));
END;

-- The width of the buckets of plant.series: wider if the interval has too many samples (minutes), or if some are not
-- stored. A notice says which samples are missing: a session that is given them (plant.archived_samples)
-- gets the finer width.
CREATE OR REPLACE FUNCTION plant.series_width(channel int, "from" timestamptz, "to" timestamptz, points int)
    RETURNS interval
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog
SET plan_cache_mode = force_custom_plan -- chunks are known to the planner by their times
SET jit = off
AS $$
DECLARE
    most_samples CONSTANT int := 150000; -- read per chart at most; the same number of minutes and of hours
    width interval;
    rate  float8; -- samples per second
    missing tstzrange;
BEGIN
    IF points IS NULL OR points < 1 OR "from" IS NULL OR "to" IS NULL OR NOT isfinite("from") OR NOT isfinite("to") THEN
        RAISE EXCEPTION 'series: from % to % in % points', "from", "to", points
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Bounds are finite times, points is at least 1.';
    END IF;
    width := plant.series_width("to" - "from", points);
    IF width < INTERVAL '1 minute' AND "from" < "to" THEN
        rate := (SELECT h.n / 3600.0 FROM plant.rollup_1h AS h
                 WHERE h.channel_id = channel AND h.bucket < "to" AND h.bucket > "from" - INTERVAL '1 hour'
                 ORDER BY h.bucket DESC LIMIT 1);
        IF rate * date_part('epoch', "to" - "from") > most_samples THEN
            width := INTERVAL '1 minute';
        ELSE
            missing := range_merge(plant.minutes_without_samples(channel, tstzmultirange(tstzrange("from", "to"))));
            IF NOT isempty(missing) THEN
                width := INTERVAL '1 minute';
                RAISE NOTICE
                    'channel %: samples between % and % are not in the database: buckets are a minute or wider',
                    channel, lower(missing), upper(missing)
                    USING ERRCODE = '02000', -- no_data
                          DETAIL = json_build_object('channel', channel, 'from', lower(missing), 'to', upper(missing));
            END IF;
        END IF;
    END IF;
    IF width < INTERVAL '1 hour' AND "from" < "to"
       AND (date_part('epoch', "to" - "from") / 60 > most_samples
            OR plant.hours_without_minutes(channel, tstzmultirange(tstzrange("from", "to"))) <> '{}') THEN
        width := INTERVAL '1 hour';
    END IF;
    RETURN width;
END
$$;
