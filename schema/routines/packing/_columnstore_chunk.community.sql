-- Convert a chunk of rows to the columnstore, or merge the late rows of a columnstored chunk, in the caller's
-- transaction. Returns 'done'; 'nothing' (to do); 'locked': the chunk is in use, try again; 'busy':
-- another session is compressing.
--
-- It waits at most a second for a lock, because all new readers and writers of the chunk queue behind it.
--
-- What a transaction with an older snapshot sees: in a converted chunk, the columnstore, because its tuples are written
-- frozen, and the rows are truncated under an exclusive lock. It would miss merged rows: their old versions are in the
-- row part, which is not read if a chunk is wholly columnstored, and their new batches are too recent for the snapshot.
-- Therefore the chunk counts as partly columnstored until no snapshot is older than the merge; columnstore_merged
-- records the merge.
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
            -- Inserting an existing row adds nothing, but makes the chunk count as partly columnstored.
            EXECUTE format('INSERT INTO %s SELECT r.* FROM %1$s AS r LIMIT 1 ON CONFLICT DO NOTHING', chunk);
            INSERT INTO plant.columnstore_merged (chunk, merged) VALUES (chunk, pg_current_xact_id());
        END IF;
    EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
        RETURN 'locked';
    END;
    RETURN 'done';
END
$$;
