-- Which of the days have a seal, or are being sealed. Until the caller's transaction ends, no other day begins to be
-- sealed: what it adds to those not returned is in their first seal.
CREATE OR REPLACE FUNCTION plant.sealed_among(days date[]) RETURNS date[]
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog
AS $$
BEGIN
    PERFORM pg_advisory_xact_lock_shared(7361023400155);
    RETURN ARRAY(SELECT d.day
                 FROM unnest(days) AS d (day)
                 WHERE EXISTS (SELECT FROM plant.day_seal AS s WHERE s.day = d.day)
                    OR EXISTS (SELECT FROM plant.seal_progress AS p WHERE p.day = d.day)
                 ORDER BY d.day);
END
$$;
COMMENT ON FUNCTION plant.sealed_among IS 'Which of the days have a seal or are being sealed.';
REVOKE EXECUTE ON FUNCTION plant.sealed_among FROM PUBLIC;
GRANT EXECUTE ON FUNCTION plant.sealed_among TO plant_ingest, plant_maintenance, plant_owner;
