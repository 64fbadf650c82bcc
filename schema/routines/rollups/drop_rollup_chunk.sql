-- Drop an empty chunk of rollup_1m, as plant.drop_packed_chunk does for samples_raw.
CREATE OR REPLACE FUNCTION plant.drop_rollup_chunk(name text) RETURNS void
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
        RETURN; -- the next call tries again
    END;
    DELETE FROM plant.rollup_chunk AS c WHERE c.chunk = name;
END
$$;
