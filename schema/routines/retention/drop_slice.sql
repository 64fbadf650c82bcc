-- Drop the rows of some classes (NULL: all) in one table between two times, or list what would be dropped. Returns one
-- row, or none if these classes have no data there. action: chunk (the whole chunk is dropped and its space is free at
-- once), rows (the chunk keeps rows of other classes or days); or the reason why nothing is dropped: unsealed,
-- unarchived, open, dirty (rollups are still to be computed from it). For packed hours, rows is the number of samples.
--
-- bytes: the size of the chunk times the share of rows that are dropped. rows are counted if that is quick, else
-- estimated by the planner. Lock waits are short: the function fails if there are long readers, and the caller retries.
CREATE OR REPLACE FUNCTION plant.drop_slice(what text, relation regclass, from_time timestamptz, to_time timestamptz,
                                            classes text[], why text, dry_run boolean)
RETURNS TABLE (day timestamptz, retention text[], channels int, rows bigint, bytes bigint, action text)
LANGUAGE plpgsql
SECURITY DEFINER -- only the owner can drop chunks
SET search_path = pg_catalog
SET timezone = 'UTC'
SET plan_cache_mode = force_custom_plan
SET jit = off
AS $$
DECLARE
    quick   CONSTANT bigint := 268435456; -- bytes of rows that are counted
    -- Records of removals are kept longer than the removed data.
    records CONSTANT text := $records$ AND r.type NOT IN ('retention', 'deleted') AND r.type NOT LIKE 'seal%'$records$;
    unit    record;
    present int[];
    going   int[];
    counted text;
    others  text := '';
    total   bigint;
    kept    bigint := 0;
BEGIN
    IF NOT dry_run THEN
        -- Excludes packing, which would move rows to the other form meanwhile.
        -- Readers and writers do not wait for this lock.
        PERFORM set_config('lock_timeout', '30s', true);
        PERFORM pg_advisory_xact_lock(CASE WHEN what IN ('1m', '1h') THEN 7361023400154 ELSE 7361023400153 END);
        PERFORM set_config('lock_timeout', '2s', true);
    END IF;
    -- A whole chunk, at the same cost however many there are. Its columnstore is as large as it was when it was filled.
    SELECT t.column_name, k.chunk, drop_slice.from_time, drop_slice.to_time,
           pg_total_relation_size(k.chunk)
           + coalesce(z.compressed_heap_size + z.compressed_toast_size + z.compressed_index_size, 0) AS bytes
    INTO unit
    FROM plant.retention_tables(what) AS t
    JOIN pg_class AS c ON c.oid = t.relation
    JOIN timescaledb_information.hypertables AS h
        ON h.hypertable_schema = c.relnamespace::regnamespace::name AND h.hypertable_name = c.relname
    CROSS JOIN LATERAL public.show_chunks(t.relation, older_than => drop_slice.to_time,
                                          newer_than => drop_slice.from_time)
        AS k (chunk)
    LEFT JOIN _timescaledb_catalog.compression_chunk_size AS z
        ON z.chunk_id = _timescaledb_functions.chunk_id_from_relid(k.chunk)
    WHERE t.relation = drop_slice.relation;
    IF NOT FOUND THEN -- a part of a chunk
        SELECT t.column_name, k.chunk, k.from_time, k.to_time, k.bytes INTO unit
        FROM plant.retention_tables(what) AS t
        CROSS JOIN LATERAL plant.chunks_of(t.relation) AS k
        WHERE t.relation = drop_slice.relation AND k.from_time <= drop_slice.from_time
          AND k.to_time >= drop_slice.to_time;
    END IF;
    IF NOT FOUND THEN -- a table without chunks
        SELECT u.column_name, u.chunk, u.from_time, u.to_time, u.bytes INTO unit
        FROM plant.retention_units(what) AS u
        WHERE u.relation = drop_slice.relation AND u.from_time <= drop_slice.from_time
          AND u.to_time >= drop_slice.to_time;
        IF NOT FOUND THEN
            RETURN;
        END IF;
    END IF;
    present := plant.channels_between(relation, unit.column_name, from_time, to_time);
    SELECT array_agg(p.id ORDER BY p.id), array_agg(DISTINCT coalesce(c.class, 'default'))
    INTO going, retention
    FROM unnest(present) AS p (id)
    LEFT JOIN plant.channel_class AS c ON c.channel_id = p.id
    WHERE classes IS NULL OR coalesce(c.class, 'default') = ANY (classes);
    IF going IS NULL THEN
        RETURN;
    END IF;

    day := from_time;
    channels := cardinality(going);
    counted := CASE WHEN relation = 'plant.samples_packed'::regclass THEN 'sum(r.n)'
                    WHEN unit.column_name = 'day' THEN 'sum(r.rows)' ELSE 'count(*)' END;
    others := CASE WHEN what = 'event' THEN records ELSE '' END;
    action := CASE WHEN unit.chunk IS NOT NULL AND cardinality(going) = cardinality(present)
                        AND from_time = unit.from_time AND to_time = unit.to_time THEN 'chunk' ELSE 'rows' END;
    IF unit.chunk IS NOT NULL AND unit.bytes > quick AND what = 'raw'
       AND relation <> 'plant.samples_packed'::regclass THEN
        total := public.approximate_row_count(unit.chunk);
        rows := total * cardinality(going) / cardinality(present);
    ELSE
        EXECUTE format('SELECT coalesce(%1$s, 0), coalesce(%1$s FILTER (WHERE coalesce(r.channel_id, 0) = ANY ($1)
                                                                        AND r.%2$I >= $2 AND r.%2$I < $3 %3$s), 0)
                        FROM %4$s AS r WHERE r.%2$I >= $4 AND r.%2$I < $5',
                       counted, unit.column_name, others, relation)
        INTO total, rows USING going, from_time, to_time, unit.from_time, unit.to_time;
        IF rows = 0 THEN
            RETURN;
        ELSIF rows < total THEN
            action := 'rows'; -- records stay
        END IF;
    END IF;
    bytes := CASE WHEN total > 0 THEN round(unit.bytes::numeric * rows / total)::bigint ELSE unit.bytes END;
    IF to_time > plant.closed_until() THEN
        action := 'open';
    ELSIF plant.lacks_seal(from_time, to_time) THEN
        action := 'unsealed';
    ELSIF what = 'raw' AND plant.lacks_archive(relation, unit.column_name, from_time, to_time, going) THEN
        action := 'unarchived';
    ELSIF what = 'event' AND plant.awaits_archive(from_time, to_time) THEN
        action := 'unarchived';
    ELSIF plant.awaits_rollups(what, from_time, to_time) THEN
        action := 'dirty';
    ELSIF NOT dry_run THEN
        IF what = 'raw' AND NOT plant.release_archived(relation, unit.chunk, going, from_time, to_time,
                                                          action = 'chunk') THEN
            action := 'unarchived';
            RETURN NEXT;
            RETURN;
        END IF;
        IF action = 'chunk' THEN
            -- First the chunk, as a reader does, and while nothing else is locked; then nothing is waited for. A reader
            -- that waits for the chunk meanwhile is never in a deadlock with this.
            EXECUTE format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE', unit.chunk);
            PERFORM set_config('lock_timeout', '100ms', true);
            PERFORM public.drop_chunks(relation, older_than => unit.to_time, newer_than => unit.from_time);
        ELSE
            -- Only events may have no channel. With the plain column, the columnstore deletes whole batches; coalesce
            -- would decompress all channels of the day.
            EXECUTE format('DELETE FROM %1$s AS r WHERE r.%2$I >= $1 AND r.%2$I < $2 AND %4$s = ANY ($3) %3$s',
                           relation, unit.column_name, others,
                           CASE what WHEN 'event' THEN 'coalesce(r.channel_id, 0)' ELSE 'r.channel_id' END)
                USING from_time, to_time, going;
        END IF;
        INSERT INTO plant.dropped AS d (what, retention, until)
        SELECT drop_slice.what, c.name, to_time FROM unnest(drop_slice.retention) AS c (name)
        ON CONFLICT ON CONSTRAINT dropped_pkey DO UPDATE SET until = excluded.until WHERE d.until < excluded.until;
        PERFORM plant.record_retention(
            format('%s of %s', relation, to_char(from_time, 'YYYY-MM-DD')), jsonb_build_object(
            'what', what, 'relation', relation::text, 'from', from_time, 'to', to_time, 'why', why, 'action', action,
            'classes', to_jsonb(retention), 'channels', channels, 'rows', rows, 'bytes', bytes,
            'channel_ids', (SELECT range_agg(int4range(i, i, '[]')) FROM unnest(going) AS g (i))::text));
    END IF;
    RETURN NEXT;
END
$$;
REVOKE EXECUTE ON FUNCTION plant.drop_slice FROM PUBLIC;
GRANT EXECUTE ON FUNCTION plant.drop_slice TO plant_maintenance, plant_owner;
