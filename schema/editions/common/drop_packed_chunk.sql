-- Drop an empty chunk of samples_raw, unless somebody may still see rows in it or is at it; says whether it is gone.
-- A snapshot of before the last rows moved would miss them in both forms: the chunk is marked first, and goes in a
-- later transaction, when all snapshots are younger than the mark. No lock is waited for, as whoever comes then would
-- wait behind; reading the chunk takes one too.
CREATE OR REPLACE FUNCTION plant.drop_packed_chunk(name text, from_time timestamptz, to_time timestamptz) RETURNS boolean
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
    RETURN false; -- the next time
END
$$;
