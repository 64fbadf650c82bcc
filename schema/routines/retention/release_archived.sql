-- Whether all that is stored of some channels in a relation between two times (chunk: its chunk, NULL: it has none) is
-- archived, in a transaction that drops it then: it puts that on record, and nothing comes to the chunk any more. Days
-- that are not archived are not looked at. Excludes packing, as its caller does.
--
-- Samples are counted before the chunk is locked, and again only if rows came meanwhile: a writer of late samples, and
-- all that it has behind them, would wait for as long as counting takes. drop_chunks locks what a writer that waits for
-- the chunk has locked: it must not wait for that until the writer is taken for the cause of a deadlock.
CREATE OR REPLACE FUNCTION plant.release_archived(relation regclass, chunk regclass, channels int[],
                                                  from_time timestamptz, to_time timestamptz, drops_chunk boolean)
    RETURNS boolean
LANGUAGE plpgsql
SET search_path = pg_catalog
SET timezone = 'UTC'
SET plan_cache_mode = force_custom_plan
SET jit = off
AS $$
DECLARE
    before  CONSTANT pg_snapshot := pg_current_snapshot();
    unknown int[];
    stored  bigint;
    came    boolean;
BEGIN
    IF NOT EXISTS (SELECT FROM plant.archived_channel AS a
                   WHERE a.day >= from_time::date AND a.day < to_time AND a.channel_id = ANY (channels)) THEN
        RETURN true;
    END IF;
    SELECT array_agg(DISTINCT a.channel_id) FILTER (WHERE i.number IS NOT NULL AND a.n IS DISTINCT FROM h.n),
           coalesce(sum((SELECT sum(u.n) FROM unnest(h.n) AS u (n))), 0)
    INTO unknown, stored
    FROM (SELECT g.* FROM plant.archived_channel AS g
          WHERE g.day >= from_time::date AND g.day < to_time AND g.channel_id = ANY (channels)) AS a
    LEFT JOIN plant.installation AS i ON i.number = a.installation
        AND i.archive_from <= a.day::timestamp AT TIME ZONE 'UTC'
    FULL JOIN plant.stored_hours(channels, from_time, to_time) AS h ON h.day = a.day AND h.channel_id = a.channel_id;
    IF unknown IS NOT NULL THEN
        UPDATE plant.archived_channel AS a SET n = NULL
        WHERE a.day >= from_time::date AND a.day < to_time AND a.channel_id = ANY (unknown);
        RETURN false;
    END IF;

    UPDATE plant.archived_day AS a SET dropped_at = clock_timestamp()
    WHERE a.dropped_at IS NULL
      AND EXISTS (SELECT FROM plant.archived_channel AS g
                  WHERE g.day = a.day AND g.installation = a.installation AND g.day >= from_time::date
                    AND g.day < to_time
                    AND g.channel_id = ANY (channels));
    -- What stays is in the other form. Rows may come to it at any time; packed hours do not change now.
    UPDATE plant.archived_channel AS a
    SET whole = false,
        n = CASE WHEN relation = 'plant.samples_packed'::regclass
                 THEN (SELECT array_agg(p.n - coalesce(p.packed, 0) ORDER BY p.hour)
                       FROM unnest(a.n, h.n) WITH ORDINALITY AS p (n, packed, hour))
                 ELSE h.n END
    FROM plant.archived_channel AS g
    LEFT JOIN plant.stored_hours(channels, from_time, to_time, 'plant.samples_packed') AS h
        ON h.day = g.day AND h.channel_id = g.channel_id
    WHERE g.day = a.day AND g.channel_id = a.channel_id
      AND a.day >= from_time::date AND a.day < to_time AND a.channel_id = ANY (channels);
    DELETE FROM plant.archived_channel AS a
    WHERE a.day >= from_time::date AND a.day < to_time AND a.channel_id = ANY (channels)
      AND coalesce(0 >= ALL (a.n), true);

    IF chunk IS NOT NULL THEN
        EXECUTE format('LOCK TABLE %s IN SHARE ROW EXCLUSIVE MODE', chunk);
        EXECUTE format('SELECT EXISTS (SELECT FROM ONLY %s AS r WHERE age(r.xmin) <= age($1))', chunk)
        INTO came USING pg_snapshot_xmin(before)::xid;
        IF came AND stored <> (SELECT coalesce(sum(u.n), 0)
                               FROM plant.stored_hours(channels, from_time, to_time) AS h
                               CROSS JOIN unnest(h.n) AS u (n)) THEN
            RAISE EXCEPTION 'samples of % came while they were counted', chunk USING ERRCODE = 'lock_not_available';
        END IF;
        IF drops_chunk THEN
            EXECUTE format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE', chunk);
            PERFORM set_config('lock_timeout', '100ms', true);
        END IF;
    END IF;
    RETURN true;
END
$$;
