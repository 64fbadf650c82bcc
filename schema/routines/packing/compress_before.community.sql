-- Convert closed data before t to the form that plant.compression() returns. A day keeps its form: late rows of
-- columnstored days are merged into the columnstore, and days with packed hours are packed completely, even if the
-- setting has changed since.
CREATE OR REPLACE PROCEDURE plant.compress_before(t timestamptz)
LANGUAGE plpgsql
AS $$
DECLARE
    native CONSTANT boolean := plant.compression() = 'native';
BEGIN
    CALL plant._columnstore_chunks(t, only_begun => NOT native);
    CALL plant._pack_chunks(t, only_begun => native);
END
$$;
COMMENT ON PROCEDURE plant.compress_before IS 'Columnstore the days that end before t, or pack the whole hours before t, as plant.compression() says; each in transactions of its own. CALL it outside a transaction.';
