-- For an import that packs hours itself: make the chunks of these days for packed hours, as far as they are closed and
-- have none. Returns the days that have one now which all queries know; others are tried again by the next call.
CREATE OR REPLACE PROCEDURE plant.make_packed_days(INOUT days timestamptz[])
LANGUAGE plpgsql
AS $$
DECLARE
    closed CONSTANT timestamptz[] := ARRAY(SELECT d.day FROM unnest(days) AS d (day)
                                           WHERE d.day < plant.closed_until() ORDER BY d.day);
    created timestamptz[] := '{}';
    day    timestamptz;
    visible boolean;
BEGIN
    days := '{}';
    IF plant.compression() <> 'packed' THEN
        RETURN;
    END IF;
    FOREACH day IN ARRAY closed LOOP
        EXECUTE 'SELECT EXISTS (SELECT FROM plant.samples_packed AS p WHERE p.hour >= $1 AND p.hour < $2)'
            INTO visible USING day, plant.add_interval(day, INTERVAL '24 hours');
        IF visible THEN
            days := days || day;
        ELSE
            PERFORM plant.make_chunk('plant.samples_packed', day);
            created := created || day;
        END IF;
    END LOOP;
    IF created <> '{}' THEN
        CALL plant._await_older_queries('plant.samples_packed', INTERVAL '5 s', visible);
        IF visible THEN
            days := days || created;
        END IF;
    END IF;
END
$$;
