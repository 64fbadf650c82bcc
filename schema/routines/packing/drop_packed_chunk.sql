-- Drop an empty chunk of samples_raw unless it is in use or a snapshot may still see rows in it; returns whether it was
-- dropped. A snapshot from before the last rows moved would miss them in both forms. So the chunk is marked first and
-- dropped by a later transaction, when all snapshots are newer than the mark. The function waits for no lock, because
-- every later reader of the chunk would queue behind it.
CREATE OR REPLACE FUNCTION plant.drop_packed_chunk(name text, from_time timestamptz, to_time timestamptz)
    RETURNS boolean
LANGUAGE plpgsql
SET search_path = pg_catalog
SET lock_timeout = '20ms'
AS $$
DECLARE
    marked xid8;
    rows   boolean;
BEGIN
    IF NOT pg_try_advisory_xact_lock(7361023400153) THEN
        RETURN false;
    END IF;
    IF EXISTS (SELECT FROM plant.samples_raw AS r
               WHERE r.time >= drop_packed_chunk.from_time AND r.time < drop_packed_chunk.to_time) THEN
        RETURN false;
    END IF;
    marked := (SELECT c.emptied FROM plant.packed_chunk AS c WHERE c.chunk = name);
    IF marked IS NULL THEN
        INSERT INTO plant.packed_chunk (chunk, from_time, to_time, emptied)
        VALUES (name, from_time, to_time, pg_current_xact_id());
        RETURN false;
    ELSIF EXISTS (SELECT FROM pg_stat_activity AS a
                  WHERE a.datname = current_database() AND a.pid <> pg_backend_pid()
                    AND (age(a.backend_xmin) > age(marked::xid) OR a.query = '<insufficient privilege>')) THEN
        RETURN false;
    END IF;
    EXECUTE format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE NOWAIT', name);
    EXECUTE format('SELECT EXISTS (SELECT FROM %s)', name) INTO rows;
    IF NOT rows THEN
        EXECUTE format('DROP TABLE %s', name);
    END IF;
    DELETE FROM plant.packed_chunk AS c WHERE c.chunk = name;
    RETURN NOT rows;
EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
    RETURN false; -- the next call tries again
END
$$;
