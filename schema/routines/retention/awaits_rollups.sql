-- Whether rollups (minutes or hours) between two times are still to be computed from data that would be dropped.
CREATE OR REPLACE FUNCTION plant.awaits_rollups(what text, from_time timestamptz, to_time timestamptz) RETURNS boolean
LANGUAGE sql STABLE
SET search_path = pg_catalog
AS $$
SELECT what IN ('raw', '1m')
   AND EXISTS (SELECT FROM plant.rollup_dirty AS d
               WHERE d.from_time < awaits_rollups.to_time AND d.to_time > awaits_rollups.from_time
                 AND (NOT d.hours OR what = '1m'))
$$;
