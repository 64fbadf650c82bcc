-- Whether a day between two times has samples of an installation that seals, and that has not sealed the day. One that
-- has not run for 30 days is not waited for.
CREATE OR REPLACE FUNCTION plant.lacks_seal(from_time timestamptz, to_time timestamptz) RETURNS boolean
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog
SET timezone = 'UTC'
AS $$
DECLARE
    midnight date;
    missing  int[];
BEGIN
    FOR midnight IN
        SELECT generate_series(date_trunc('day', from_time), to_time - INTERVAL '1 microsecond', INTERVAL '1 day')
    LOOP
        SELECT array_agg(i.number) INTO missing
        FROM plant.installation AS i
        LEFT JOIN plant.presence AS p ON p.installation_id = i.id
        WHERE i.sealing AND coalesce(p.seen_at, i.registered_at) > now() - INTERVAL '30 days'
          AND NOT EXISTS (SELECT FROM plant.day_seal AS s WHERE s.day = midnight AND s.installation IN (0, i.number));
        IF missing IS NOT NULL AND EXISTS (
            SELECT FROM (SELECT DISTINCT p.channel_id FROM plant.samples_packed AS p
                         WHERE p.hour >= midnight AND p.hour < midnight + 1
                         UNION
                         SELECT unnest(plant.channels_between('plant.samples_raw', 'time', midnight, midnight + 1))
                        ) AS d (channel_id)
            LEFT JOIN plant.channel AS c ON c.id = d.channel_id
            LEFT JOIN plant.source AS s ON s.id = c.source_id
            LEFT JOIN plant.installation AS i ON i.id = s.installation_id
            WHERE coalesce(i.number, 1) = ANY (missing)) THEN
            RETURN true;
        END IF;
    END LOOP;
    RETURN false;
END
$$;
