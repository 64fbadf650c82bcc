-- Convert the chunks that end before t to the columnstore, oldest first, and merge late rows into columnstored chunks.
-- Days with packed hours are skipped; so are, with only_begun, chunks that are not columnstored yet.
CREATE OR REPLACE PROCEDURE plant._columnstore_chunks(t timestamptz, only_begun boolean)
LANGUAGE plpgsql
AS $$
DECLARE
    most CONSTANT int := 3; -- attempts per call
    day    record;
    result text;
BEGIN
    FOR day IN
        SELECT k.*
        FROM plant._raw_chunks(t) AS k
        WHERE k.to_time <= t AND (k.columnstored OR NOT (k.packed OR only_begun))
    LOOP
        FOR attempt IN 1..most LOOP
            result := plant._columnstore_chunk(day.chunk);
            COMMIT;
            EXIT WHEN result <> 'locked';
        END LOOP;
        IF result = 'busy' THEN
            RAISE NOTICE 'another session is compressing';
            RETURN;
        ELSIF result = 'locked' THEN
            RAISE NOTICE 'the day from % is in use: it is columnstored by the next call', day.from_time;
        END IF;
    END LOOP;
    DELETE FROM plant.columnstore_merged AS m WHERE to_regclass(m.chunk) IS NULL; -- dropped meanwhile
END
$$;
