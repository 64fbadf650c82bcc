-- Whether some channels (NULL: any) have samples of an archiving installation in a relation between two times that are not in the
-- archive, as far as is known without counting them: drop_slice does that. Days that retention had cut before there was an
-- archive are not waited for.
CREATE OR REPLACE FUNCTION plant.lacks_archive(relation regclass, column_name name, from_time timestamptz, to_time timestamptz,
                                               channels int[] DEFAULT NULL) RETURNS boolean
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog
SET timezone = 'UTC'
AS $$
DECLARE
    midnight timestamptz;
    present  int[];
BEGIN
    IF NOT EXISTS (SELECT FROM plant.installation AS i WHERE i.archive_from IS NOT NULL) THEN
        RETURN false;
    END IF;
    FOR midnight IN
        SELECT generate_series(date_trunc('day', from_time), to_time - INTERVAL '1 microsecond', INTERVAL '1 day')
    LOOP
        present := plant.channels_between(relation, column_name, midnight, midnight + INTERVAL '1 day');
        IF EXISTS (
            SELECT
            FROM unnest(present) AS p (id)
            LEFT JOIN plant.channel AS c ON c.id = p.id
            LEFT JOIN plant.source AS s ON s.id = c.source_id
            LEFT JOIN plant.installation AS o ON o.id = s.installation_id
            -- The first one has sealed all as long as it was alone.
            JOIN plant.installation AS i
                ON i.number = CASE WHEN EXISTS (SELECT FROM plant.day_seal AS d WHERE d.day = midnight::date AND d.installation = 0)
                                   THEN 1 ELSE coalesce(o.number, 1) END
            LEFT JOIN plant.archived_channel AS a ON a.day = midnight::date AND a.channel_id = p.id
            LEFT JOIN plant.archived_day AS w ON w.day = a.day AND w.installation = a.installation
            WHERE midnight >= i.archive_from AND (channels IS NULL OR p.id = ANY (channels))
              AND (a.n IS NULL OR w.revision IS DISTINCT FROM (SELECT max(d.revision) FROM plant.day_seal AS d
                                                              WHERE d.day = midnight::date AND d.chain = a.installation))
        ) THEN
            RETURN true;
        END IF;
    END LOOP;
    RETURN false;
END
$$;
