-- Chunks of rollup_1m that are being packed: the last channel that was, and when the chunk was seen empty; it goes when
-- nobody can have an older view of it.
CREATE TABLE plant.rollup_chunk (
    chunk     text PRIMARY KEY,
    packed_to int  NOT NULL,
    emptied   xid8
);

-- The next channels behind one that have rows in rollup_1m on a day, by one index look-up each.
CREATE FUNCTION plant.channels_in_minutes(day timestamptz, after int, most int) RETURNS int[]
LANGUAGE sql STABLE
SET search_path = pg_catalog
SET plan_cache_mode = force_custom_plan
AS $$
WITH RECURSIVE found (channel_id, place) AS (
    (SELECT r.channel_id, 1 FROM plant.rollup_1m AS r
     WHERE r.bucket >= day AND r.bucket < day + INTERVAL '24 hours' AND r.channel_id > after
     ORDER BY r.channel_id LIMIT 1)
    UNION ALL
    SELECT (SELECT r.channel_id FROM plant.rollup_1m AS r
            WHERE r.bucket >= day AND r.bucket < day + INTERVAL '24 hours' AND r.channel_id > f.channel_id
            ORDER BY r.channel_id LIMIT 1), f.place + 1
    FROM found AS f
    WHERE f.channel_id IS NOT NULL AND f.place < most
)
SELECT coalesce(array_agg(f.channel_id ORDER BY f.place), '{}') FROM found AS f WHERE f.channel_id IS NOT NULL
$$;

-- Some channels' minutes of a day become packed ones; false: another session is at the rollups, nothing was done.
CREATE FUNCTION plant.pack_rollup_channels(of_day timestamptz, ids int[]) RETURNS boolean
LANGUAGE plpgsql
SET search_path = pg_catalog
SET plan_cache_mode = force_custom_plan
SET jit = off
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
BEGIN
    IF NOT pg_try_advisory_xact_lock(7361023400154) THEN
        RETURN false;
    END IF;
    INSERT INTO plant.rollup_1m_packed
    SELECT p.*
    FROM unnest(ids) AS c (id)
    CROSS JOIN LATERAL plant.pack_minutes(c.id, of_day) AS p
    WHERE p.rows > 0;
    DELETE FROM plant.rollup_1m AS r
    WHERE r.channel_id = ANY (ids) AND r.bucket >= of_day AND r.bucket < of_day + INTERVAL '24 hours';
    RETURN true;
END
$$;

-- Drop an empty chunk of rollup_1m, as plant.drop_packed_chunk does with those of samples_raw.
CREATE FUNCTION plant.drop_rollup_chunk(name text) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog
SET lock_timeout = '20ms'
AS $$
DECLARE
    marked CONSTANT xid8 := (SELECT c.emptied FROM plant.rollup_chunk AS c WHERE c.chunk = name);
    rows   boolean;
BEGIN
    IF marked IS NULL THEN
        EXECUTE format('SELECT EXISTS (SELECT FROM %s)', name) INTO rows;
        IF NOT rows THEN
            INSERT INTO plant.rollup_chunk (chunk, packed_to, emptied) VALUES (name, 0, pg_current_xact_id())
            ON CONFLICT (chunk) DO UPDATE SET packed_to = excluded.packed_to, emptied = excluded.emptied;
        END IF;
        RETURN;
    ELSIF NOT pg_try_advisory_xact_lock(7361023400154)
          OR EXISTS (SELECT FROM pg_stat_activity AS a
                     WHERE a.datname = current_database() AND a.pid <> pg_backend_pid()
                       AND (age(a.backend_xmin) > age(marked::xid) OR a.query = '<insufficient privilege>')) THEN
        RETURN;
    END IF;
    BEGIN
        EXECUTE format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE NOWAIT', name);
        EXECUTE format('SELECT EXISTS (SELECT FROM %s)', name) INTO rows;
        IF NOT rows THEN
            EXECUTE format('DROP TABLE %s', name);
        END IF;
    EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
        RETURN; -- the next time
    END;
    DELETE FROM plant.rollup_chunk AS c WHERE c.chunk = name;
END
$$;

-- Pack the minutes of whole days (UTC) before t, oldest first, 50 channels a transaction, so many transactions (NULL: all).
-- refresh_rollups does one at a time with days that are over for as long as data may be late: what is new goes before.
CREATE PROCEDURE plant.pack_rollups_before(t timestamptz, portions int DEFAULT NULL)
LANGUAGE plpgsql
AS $$
DECLARE
    most CONSTANT int := 50;
    whole_day record;
    channels  int[];
    after     int;
BEGIN
    FOR whole_day IN
        SELECT format('%I.%I', k.chunk_schema, k.chunk_name) AS name, k.range_start
        FROM timescaledb_information.chunks AS k
        WHERE k.hypertable_schema = 'plant' AND k.hypertable_name = 'rollup_1m' AND k.range_end <= t
          AND NOT EXISTS (SELECT FROM plant.rollup_dirty AS d
                          WHERE NOT d.hours AND d.from_time < k.range_end AND d.to_time > k.range_start)
        ORDER BY k.range_start
    LOOP
        LOOP
            after := coalesce((SELECT c.packed_to FROM plant.rollup_chunk AS c WHERE c.chunk = whole_day.name), 0);
            channels := plant.channels_in_minutes(whole_day.range_start, after, most);
            IF channels = '{}' AND after > 0 THEN -- of days that were packed before, what is late
                channels := plant.channels_in_minutes(whole_day.range_start, 0, most);
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
COMMENT ON PROCEDURE plant.pack_rollups_before IS 'Pack the minutes of whole days before t. CALL it outside a transaction.';

GRANT SELECT ON plant.rollup_chunk TO plant_reader, plant_ingest;
GRANT ALL ON plant.rollup_chunk TO plant_owner;
