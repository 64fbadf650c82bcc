-- Whether some channels (NULL: any) have samples of an archiving installation in a relation between two times that are
-- not in its archive, as far as is known without counting them: release_archived does that. Days that retention had cut
-- before there was an archive are not waited for.
CREATE OR REPLACE FUNCTION plant.lacks_archive(relation regclass, column_name name, from_time timestamptz,
                                               to_time timestamptz, channels int[] DEFAULT NULL) RETURNS boolean
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
            WITH
            archiving AS MATERIALIZED (
                SELECT i.number,
                       EXISTS (SELECT FROM plant.archived_day AS w
                               WHERE w.day = midnight::date AND w.installation = i.number
                                 AND w.location = i.archive_location
                                 AND w.revision = (SELECT max(s.revision) FROM plant.day_seal AS s
                                                   WHERE s.day = w.day AND s.chain = w.installation)) AS archived
                FROM plant.installation AS i
                WHERE midnight >= i.archive_from
            ),
            -- The first one has sealed all as long as it was alone.
            alone AS MATERIALIZED (
                SELECT EXISTS (SELECT FROM plant.day_seal AS s
                               WHERE s.day = midnight::date AND s.installation = 0) AS was
            )
            SELECT
            FROM unnest(present) AS p (id)
            LEFT JOIN plant.channel AS c ON c.id = p.id
            LEFT JOIN plant.source AS s ON s.id = c.source_id
            LEFT JOIN plant.installation AS o ON o.id = s.installation_id
            JOIN archiving AS i ON i.number = CASE WHEN (SELECT l.was FROM alone AS l) THEN 1
                                                   ELSE coalesce(o.number, 1) END
            LEFT JOIN plant.archived_channel AS a ON a.day = midnight::date AND a.channel_id = p.id
            WHERE (channels IS NULL OR p.id = ANY (channels)) AND (NOT i.archived OR a.n IS NULL)
        ) THEN
            RETURN true;
        END IF;
    END LOOP;
    RETURN false;
END
$$;
