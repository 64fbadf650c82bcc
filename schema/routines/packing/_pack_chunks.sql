-- Pack the whole hours before t that have rows in samples_raw, oldest first, and drop chunks that become empty.
-- Columnstored chunks are left alone; with only_begun, so are days without any packed hour.
CREATE OR REPLACE PROCEDURE plant._pack_chunks(t timestamptz, only_begun boolean)
LANGUAGE plpgsql
AS $$
DECLARE
    day      record;
    all_ids  int[];
    channels int[]; -- that have rows of the hour
    hour     timestamptz;
    batch    int;
    known    boolean; -- the packed chunk, to all queries
BEGIN
    FOR day IN SELECT k.* FROM plant._raw_chunks(t) AS k WHERE NOT k.columnstored AND (k.packed OR NOT only_begun) LOOP
        all_ids := plant.channels_between('plant.samples_raw', 'time', day.from_time, day.to_time);
        hour := day.from_time;
        EXECUTE 'SELECT EXISTS (SELECT FROM plant.samples_packed AS p WHERE p.hour >= $1 AND p.hour < $2)'
            INTO known USING day.from_time, day.to_time;
        LOOP
            SELECT f.hour, f.channels INTO hour, channels FROM plant._hour_to_pack(all_ids, hour, least(t, day.to_time)) AS f;
            EXIT WHEN hour IS NULL;
            IF NOT known THEN
                INSERT INTO plant.samples_packed (hour, start, step, base, divisor, channel_id, n, unit, status, single)
                VALUES (day.from_time, day.from_time, 1, 0, 1, 0, 1, 1, 0, false); -- creates the chunk
                DELETE FROM plant.samples_packed AS p WHERE p.channel_id = 0 AND p.hour = day.from_time;
                CALL plant._await_older_queries('plant.samples_packed', INTERVAL '10 s', known);
                EXIT WHEN NOT known; -- the next call tries again
            END IF;
            WHILE channels <> '{}' LOOP
                batch := plant._channels_to_pack(channels, hour);
                IF plant.pack_hour(hour, channels[:batch]) IS NULL THEN
                    COMMIT;
                    RAISE NOTICE 'another session is compressing';
                    RETURN;
                END IF;
                COMMIT;
                channels := channels[batch + 1:];
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
