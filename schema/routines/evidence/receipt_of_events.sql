-- Adds receipts of events, for those on days that have a seal or are being sealed.
-- Called in the transaction that adds them.
CREATE OR REPLACE FUNCTION plant.receipt_of_events(times timestamptz[], ids bigint[]) RETURNS void
LANGUAGE sql
SECURITY DEFINER
SET search_path = pg_catalog
AS $$
WITH event AS (
    SELECT (e.time AT TIME ZONE 'UTC')::date AS day, e.time, e.id FROM unnest(times, ids) AS e (time, id)
)
INSERT INTO plant.receipt (day, kind, content)
SELECT e.day, 'events',
       string_agg(int8send((extract(epoch FROM e.time) * 1000000)::int8) || int8send(e.id), ''::bytea
                  ORDER BY e.time, e.id)
FROM event AS e
WHERE e.day = ANY (plant.sealed_among(ARRAY(SELECT DISTINCT d.day FROM event AS d ORDER BY d.day)))
GROUP BY e.day
$$;
COMMENT ON FUNCTION plant.receipt_of_events IS 'Adds receipts of events that came to sealed days.';
REVOKE EXECUTE ON FUNCTION plant.receipt_of_events FROM PUBLIC;
GRANT EXECUTE ON FUNCTION plant.receipt_of_events TO plant_ingest, plant_maintenance, plant_owner;
