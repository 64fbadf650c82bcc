-- The form of closed days: the setting 'compression', native by default.
CREATE OR REPLACE FUNCTION plant.compression() RETURNS text
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog
AS $$
DECLARE
    form text := coalesce((SELECT s.value FROM plant.setting AS s WHERE s.key = 'compression'), 'native');
BEGIN
    IF form NOT IN ('native', 'packed') THEN
        RAISE EXCEPTION 'compression is ''%'', which is no form of storage', form
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Set compression = "native" or "packed".';
    END IF;
    RETURN form;
END
$$;
COMMENT ON FUNCTION plant.compression IS 'The form of closed days: native (the columnstore) or packed.';
