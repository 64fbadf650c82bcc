-- Convert closed data before t to its long-term form, which is packed in this edition.
CREATE OR REPLACE PROCEDURE plant.compress_before(t timestamptz)
LANGUAGE plpgsql
AS $$
BEGIN
    PERFORM plant.compression(); -- an illegal one is an error
    CALL plant._pack_chunks(t, false);
END
$$;
COMMENT ON PROCEDURE plant.compress_before IS 'Pack the whole hours before t, in short transactions that block nobody. CALL it outside a transaction.';
