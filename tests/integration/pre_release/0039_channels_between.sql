-- One function says which channels have rows, of whatever table, and its bounds are constants of its plan. Where they were
-- parameters, an index scan in order of channels excluded no chunk: each look-up for one day walked the whole index of
-- another one, and packing a day beside a full one took hours.

DROP FUNCTION plant.channels_in_raw;
DROP FUNCTION plant.channels_between;

-- The channels that have rows in a table between two times, in order, by one index look-up each: the first ``most`` (NULL:
-- all) behind channel ``after`` (NULL: from the first). 0 stands for rows of no channel.
CREATE FUNCTION plant.channels_between(relation regclass, column_name name, from_time timestamptz, to_time timestamptz,
                                       after int DEFAULT NULL, most int DEFAULT NULL)
RETURNS int[]
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog
AS $$
DECLARE
    found int[];
BEGIN
    EXECUTE format($query$
        WITH RECURSIVE found (channel_id, place) AS (
            (SELECT r.channel_id, 1 FROM %1$s AS r
             WHERE r.%2$I >= %3$L AND r.%2$I < %4$L AND %5$s ORDER BY r.channel_id LIMIT 1)
            UNION ALL
            SELECT (SELECT r.channel_id FROM %1$s AS r
                    WHERE r.%2$I >= %3$L AND r.%2$I < %4$L AND r.channel_id > f.channel_id ORDER BY r.channel_id LIMIT 1),
                   f.place + 1
            FROM found AS f
            WHERE f.channel_id IS NOT NULL AND f.place < %6$s
        )
        SELECT coalesce(array_agg(f.channel_id ORDER BY f.place), '{}') FROM found AS f WHERE f.channel_id IS NOT NULL
    $query$, relation, column_name, from_time, to_time,
    coalesce('r.channel_id > ' || after, 'r.channel_id IS NOT NULL'), coalesce(most, 2147483647)) INTO found;
    IF relation = 'plant.event'::regclass AND NOT 0 = ANY (found)
       AND EXISTS (SELECT FROM plant.event AS e WHERE e.channel_id IS NULL AND e.time >= from_time AND e.time < to_time) THEN
        found := 0 || found;
    END IF;
    RETURN found;
END
$$;

-- Pack the minutes of whole days (UTC) before t, oldest first, 50 channels a transaction, so many transactions (NULL: all).
-- refresh_rollups does one at a time with days that are over for as long as data may be late: what is new goes before.
CREATE OR REPLACE PROCEDURE plant.pack_rollups_before(t timestamptz, portions int DEFAULT NULL)
LANGUAGE plpgsql
AS $$
DECLARE
    most CONSTANT int := 50;
    whole_day record;
    channels  int[];
    after     int; -- NULL: none of the day is packed
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
            IF channels = '{}' AND after IS NOT NULL THEN -- of days that were packed before, what is late
                channels := plant.channels_between('plant.rollup_1m', 'bucket', whole_day.range_start, whole_day.range_end,
                                                   NULL, most);
            END IF;
            EXIT WHEN channels = '{}';
            IF portions <= 0 OR NOT plant.pack_rollup_channels(whole_day.range_start, channels) THEN
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

DROP FUNCTION plant.channels_in_minutes;
