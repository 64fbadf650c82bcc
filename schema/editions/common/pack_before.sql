-- Every some 250,000 rows are a transaction of their own, which moves them: whoever reads has each sample in the one
-- form or in the other. Ended at any moment it goes on from there when called again; two at once do no harm, the
-- second ends at once. Late rows of packed hours are merged by the next call.
CREATE OR REPLACE PROCEDURE plant.pack_before(t timestamptz)
LANGUAGE plpgsql
AS $$
BEGIN
    CALL plant._pack_chunks(t, false);
END
$$;
COMMENT ON PROCEDURE plant.pack_before IS 'Pack the whole hours before t, in small transactions that nobody waits for; columnstored days stay. CALL it outside a transaction.';
