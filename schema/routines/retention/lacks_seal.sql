-- Whether sealing is enabled and a day between two times has samples but no seal.
CREATE OR REPLACE FUNCTION plant.lacks_seal(from_time timestamptz, to_time timestamptz) RETURNS boolean
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog
SET timezone = 'UTC'
AS $$
DECLARE
    midnight date;
BEGIN
    IF coalesce((SELECT s.value FROM plant.setting AS s WHERE s.key = 'sealing'), 'off') <> 'on' THEN
        RETURN false;
    END IF;
    FOR midnight IN
        SELECT generate_series(date_trunc('day', from_time), to_time - INTERVAL '1 microsecond', INTERVAL '1 day')
    LOOP
        IF NOT EXISTS (SELECT FROM plant.day_seal AS s WHERE s.day = midnight)
           AND (EXISTS (SELECT FROM plant.samples_raw AS r WHERE r.time >= midnight AND r.time < midnight + 1)
                OR EXISTS (SELECT FROM plant.samples_packed AS p WHERE p.hour >= midnight AND p.hour < midnight + 1)) THEN
            RETURN true;
        END IF;
    END LOOP;
    RETURN false;
END
$$;
