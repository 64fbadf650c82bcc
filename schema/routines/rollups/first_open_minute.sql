-- Start of the first minute that a writer holds open.
CREATE OR REPLACE FUNCTION plant.first_open_minute() RETURNS timestamptz
LANGUAGE sql VOLATILE -- depends on the clock
SET search_path = pg_catalog
AS $$
SELECT min(d.from_time) FROM plant.rollup_dirty AS d
WHERE d.open_since IS NOT NULL AND d.open_since > clock_timestamp() - plant.open_minute_limit()
$$;
