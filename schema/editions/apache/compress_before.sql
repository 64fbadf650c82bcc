-- Give what is closed before t the form that it is kept in. Here that is the packed one.
CREATE OR REPLACE PROCEDURE plant.compress_before(t timestamptz)
LANGUAGE plpgsql
AS $$
BEGIN
    PERFORM plant.compression(); -- an illegal one is an error
    CALL plant._pack_chunks(t, false);
END
$$;
COMMENT ON PROCEDURE plant.compress_before IS 'Pack the whole hours before t, in small transactions that nobody waits for. CALL it outside a transaction.';
