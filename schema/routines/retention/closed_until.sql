-- Start of the oldest open day (UTC): a day is open until it has been over for as long as late data is accepted.
CREATE OR REPLACE FUNCTION plant.closed_until() RETURNS timestamptz
LANGUAGE sql STABLE
SET search_path = pg_catalog
AS $$
SELECT date_trunc('day', now() - INTERVAL '1 second' * coalesce(
    (SELECT s.value::float8 FROM plant.setting AS s WHERE s.key = 'lateness'), 3600), 'UTC')
$$;
COMMENT ON FUNCTION plant.closed_until IS
    'Start of the oldest open day (UTC). Earlier days are closed: the time for late data is over.';
