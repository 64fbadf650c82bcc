-- Columnstore a chunk of rows, or merge the late rows of a columnstored one, in the caller's transaction. Returns
-- 'done'; 'nothing' to do; 'locked': somebody is at the chunk, try again; 'busy': another session is compressing.
--
-- No more than a second is waited for a lock, as whoever wants to read or write the chunk meanwhile waits behind.
--
-- What a transaction sees whose view is older than this: of a chunk that was rows, the columnstore, as its tuples are
-- written frozen and the rows truncated under an exclusive lock. Merged rows it would miss: they are deleted where they
-- were, where nobody looks in a chunk that is wholly columnstored, and their new batches are too young for it. So the
-- chunk counts as partly columnstored until no view is older than the merging; columnstore_merged says since when.
CREATE OR REPLACE FUNCTION plant._columnstore_chunk(chunk text) RETURNS text
LANGUAGE plpgsql
SET search_path = pg_catalog
SET lock_timeout = '1s'
SET timescaledb.compress_truncate_behaviour = 'truncate_only'
AS $$
DECLARE
    columnstored CONSTANT int := 1; -- bits of a chunk's status
    partly       CONSTANT int := 8;
    status int;
    late   boolean;
BEGIN
    IF NOT pg_try_advisory_xact_lock(7361023400153) THEN
        RETURN 'busy';
    ELSIF to_regclass(chunk) IS NULL THEN
        RETURN 'nothing';
    END IF;
    status := _timescaledb_functions.chunk_status(chunk::regclass);
    BEGIN
        IF status & columnstored = 0 THEN
            PERFORM public.compress_chunk(chunk::regclass);
            RETURN 'done';
        ELSIF status & partly = 0 THEN
            RETURN 'nothing';
        END IF;
        EXECUTE format('LOCK TABLE ONLY %s IN EXCLUSIVE MODE', chunk);
        EXECUTE format('SELECT EXISTS (SELECT FROM ONLY %s)', chunk) INTO late;
        IF NOT late AND EXISTS (
            SELECT
            FROM plant.columnstore_merged AS m
            CROSS JOIN pg_stat_activity AS a
            WHERE m.chunk = _columnstore_chunk.chunk
              AND a.datname = current_database() AND a.pid <> pg_backend_pid()
              AND (age(a.backend_xmin) > age(m.merged::xid) OR a.query = '<insufficient privilege>')
        ) THEN
            RETURN 'nothing';
        END IF;
        PERFORM public.compress_chunk(chunk::regclass);
        DELETE FROM plant.columnstore_merged AS m WHERE m.chunk = _columnstore_chunk.chunk;
        IF late THEN
            -- An insertion of what is there already inserts nothing, and makes the chunk count as partly columnstored.
            EXECUTE format('INSERT INTO %s SELECT r.* FROM %1$s AS r LIMIT 1 ON CONFLICT DO NOTHING', chunk);
            INSERT INTO plant.columnstore_merged (chunk, merged) VALUES (chunk, pg_current_xact_id());
        END IF;
    EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
        RETURN 'locked';
    END;
    RETURN 'done';
END
$$;
