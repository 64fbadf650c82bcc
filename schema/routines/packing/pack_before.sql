-- Each transaction moves about 100,000 rows, so readers see each sample in exactly one form. If the call is interrupted,
-- the next one continues there. A second concurrent call returns at once. Late rows of packed hours are merged by the
-- next call.
CREATE OR REPLACE PROCEDURE plant.pack_before(t timestamptz)
LANGUAGE plpgsql
AS $$
BEGIN
    CALL plant._pack_chunks(t, false);
END
$$;
COMMENT ON PROCEDURE plant.pack_before IS 'Pack the whole hours before t, in short transactions that block nobody; columnstored days are left alone. CALL it outside a transaction.';
