-- Pack the whole hours before t that have rows in samples_raw, oldest first, and drop the chunks that are empty then.
-- Columnstored chunks stay as they are; with only_begun, also those of days of which nothing is packed yet.
CREATE OR REPLACE PROCEDURE plant._pack_chunks(t timestamptz, only_begun boolean)
LANGUAGE plpgsql
AS $$
DECLARE
    target   CONSTANT int := 250000; -- rows a transaction
    most     CONSTANT int := 1000;   -- channels a transaction
    day      record;
    channels int[];
    hour     timestamptz;
    done     int;
    batch    int := 32; -- channels, as many as made up the target the last time
    moved    bigint;
BEGIN
    FOR day IN SELECT k.* FROM plant._raw_chunks(t) AS k WHERE NOT k.columnstored AND (k.packed OR NOT only_begun) LOOP
        channels := plant.channels_in_raw(day.from_time, day.to_time);
        hour := day.from_time;
        WHILE hour + INTERVAL '1 hour' <= least(t, day.to_time) LOOP
            done := 0;
            WHILE done < cardinality(channels) LOOP
                moved := plant.pack_hour(hour, channels[done + 1 : done + batch]);
                COMMIT;
                IF moved IS NULL THEN
                    RAISE NOTICE 'another session is compressing';
                    RETURN;
                END IF;
                done := done + batch;
                batch := greatest(1, least(most, 2 * batch, batch * target / greatest(moved, 1)));
            END LOOP;
            hour := hour + INTERVAL '1 hour';
        END LOOP;
        IF day.to_time <= t THEN
            PERFORM plant.drop_packed_chunk(day.chunk, day.from_time, day.to_time);
            COMMIT;
        END IF;
    END LOOP;
    DELETE FROM plant.packed_chunk AS c WHERE to_regclass(c.chunk) IS NULL;
    FOR day IN SELECT c.chunk, c.from_time, c.to_time FROM plant.packed_chunk AS c LOOP
        PERFORM plant.drop_packed_chunk(day.chunk, day.from_time, day.to_time);
        COMMIT;
    END LOOP;
END
$$;
