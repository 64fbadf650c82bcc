-- Columnstore the chunks that end before t, oldest first, and merge late rows into those that are; days of which hours
-- are packed are left out, and with only_begun what is not columnstored yet.
CREATE OR REPLACE PROCEDURE plant._columnstore_chunks(t timestamptz, only_begun boolean)
LANGUAGE plpgsql
AS $$
DECLARE
    most CONSTANT int := 3; -- attempts a call
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
    DELETE FROM plant.columnstore_merged AS m WHERE to_regclass(m.chunk) IS NULL; -- dropped since
END
$$;
