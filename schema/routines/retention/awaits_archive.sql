-- Whether sealed days between two times are not in the archive of their installation as they are, as far as that is
-- known without a look at what is stored: lacks_archive does that.
CREATE OR REPLACE FUNCTION plant.awaits_archive(from_time timestamptz, to_time timestamptz) RETURNS boolean
LANGUAGE sql STABLE
SET search_path = pg_catalog
SET timezone = 'UTC'
AS $$
SELECT EXISTS (
    SELECT
    FROM plant.installation AS i
    JOIN plant.day_seal AS s ON s.chain = i.number AND s.day::timestamptz >= i.archive_from
    LEFT JOIN plant.archived_day AS a ON a.installation = s.chain AND a.day = s.day AND a.location = i.archive_location
    WHERE s.day >= from_time::date AND s.day < to_time
      AND (s.revision > coalesce(a.revision, -1)
           OR EXISTS (SELECT FROM plant.archived_channel AS c
                      WHERE c.day = s.day AND c.installation = s.chain AND c.n IS NULL)))
$$;
