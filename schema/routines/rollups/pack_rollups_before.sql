-- Pack the minutes of whole days (UTC) before t, oldest first, 50 channels per transaction, up to a number of transactions
-- (NULL: all). refresh_rollups calls it for closed days with one transaction at a time, so that new data goes first.
CREATE OR REPLACE PROCEDURE plant.pack_rollups_before(t timestamptz, portions int DEFAULT NULL)
LANGUAGE plpgsql
AS $$
DECLARE
    most CONSTANT int := 50;
    whole_day record;
    channels  int[];
    after     int; -- NULL: nothing of the day is packed
    known     boolean; -- the packed chunk, to all queries
BEGIN
    FOR whole_day IN
        SELECT format('%I.%I', k.chunk_schema, k.chunk_name) AS name, k.range_start, k.range_end
        FROM timescaledb_information.chunks AS k
        WHERE k.hypertable_schema = 'plant' AND k.hypertable_name = 'rollup_1m' AND k.range_end <= t
          AND NOT EXISTS (SELECT FROM plant.rollup_dirty AS d
                          WHERE NOT d.hours AND d.from_time < k.range_end AND d.to_time > k.range_start)
        ORDER BY k.range_start
    LOOP
        LOOP
            after := (SELECT c.packed_to FROM plant.rollup_chunk AS c WHERE c.chunk = whole_day.name);
            channels := plant.channels_between('plant.rollup_1m', 'bucket', whole_day.range_start, whole_day.range_end,
                                               after, most);
            IF channels = '{}' AND after IS NOT NULL THEN -- late minutes of days that are packed already
                channels := plant.channels_between('plant.rollup_1m', 'bucket', whole_day.range_start, whole_day.range_end,
                                                   NULL, most);
            END IF;
            EXIT WHEN channels = '{}';
            IF portions <= 0 THEN
                RETURN;
            END IF;
            EXECUTE 'SELECT EXISTS (SELECT FROM plant.rollup_1m_packed AS p WHERE p.day = $1)' INTO known
                USING whole_day.range_start;
            IF NOT known THEN
                INSERT INTO plant.rollup_1m_packed (day, channel_id, rows) VALUES (whole_day.range_start, 0, 0);
                DELETE FROM plant.rollup_1m_packed AS p WHERE p.channel_id = 0 AND p.day = whole_day.range_start;
                CALL plant._await_older_queries('plant.rollup_1m_packed', INTERVAL '1 s', known);
                EXIT WHEN NOT known; -- the next call tries again
            END IF;
            IF NOT plant.pack_rollup_channels(whole_day.range_start, channels) THEN
                RETURN;
            END IF;
            INSERT INTO plant.rollup_chunk AS c (chunk, packed_to) VALUES (whole_day.name, channels[cardinality(channels)])
            ON CONFLICT (chunk) DO UPDATE SET packed_to = excluded.packed_to, emptied = NULL;
            COMMIT;
            portions := portions - 1;
        END LOOP;
        PERFORM plant.drop_rollup_chunk(whole_day.name);
        COMMIT;
    END LOOP;
    DELETE FROM plant.rollup_chunk AS c WHERE to_regclass(c.chunk) IS NULL;
END
$$;
COMMENT ON PROCEDURE plant.pack_rollups_before IS 'Pack the minutes of whole days before t. CALL it outside a transaction.';
