-- The form of closed hours: the setting 'compression', whose only legal value in this edition is the default.
CREATE OR REPLACE FUNCTION plant.compression() RETURNS text
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog
AS $$
DECLARE
    form text := coalesce((SELECT s.value FROM plant.setting AS s WHERE s.key = 'compression'), 'packed');
BEGIN
    IF form <> 'packed' THEN
        RAISE EXCEPTION 'compression is ''%'', but TimescaleDB''s Apache-2 edition has no columnstore', form
            USING ERRCODE = 'feature_not_supported',
                  HINT = 'Set compression = "packed", or run TimescaleDB''s Community edition.';
    END IF;
    RETURN form;
END
$$;
COMMENT ON FUNCTION plant.compression IS 'The form of closed hours: packed.';
