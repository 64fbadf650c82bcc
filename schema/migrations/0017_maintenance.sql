-- Classes of retention, what they drop and what is never dropped, and what maintenance did.
--
-- What goes, goes by rule and on record: every drop is an event of type retention with the day, the classes, the
-- channels, rows and bytes, written in the transaction that drops. The open day is never touched, nor one that has no
-- seal where days are sealed; plant.drop_slice sees to it, whoever calls it.

ALTER TABLE plant.channel ADD COLUMN retention text NOT NULL DEFAULT 'default';
COMMENT ON COLUMN plant.channel.retention IS 'Class of retention: a row of plant.retention_class.';

CREATE TABLE plant.retention_class (
    name   text PRIMARY KEY,
    raw    interval,
    minute interval,
    hour   interval,
    event  interval
);
INSERT INTO plant.retention_class (name) VALUES ('default');
COMMENT ON TABLE plant.retention_class IS 'How long the channels of a class keep what, as configured; NULL: forever. What has no channel is of class default.';

-- Until where something was dropped. Who makes rollups anew from raw data has to know: of what is gone they stay.
CREATE TABLE plant.dropped (
    what      text        NOT NULL,
    retention text        NOT NULL,
    until     timestamptz NOT NULL,
    PRIMARY KEY (what, retention)
);
COMMENT ON TABLE plant.dropped IS 'Of the class, data of the kind (raw, 1m, 1h, event) before until may have been dropped by rule.';

-- Those of the channels whose data of a kind (raw, 1m, 1h) at a time no rule has dropped.
CREATE FUNCTION plant.not_dropped(channels int[], what text, at timestamptz) RETURNS int[]
LANGUAGE sql STABLE
SET search_path = pg_catalog
AS $$
SELECT coalesce(array_agg(i.id), '{}')
FROM unnest(channels) AS i (id)
LEFT JOIN plant.channel AS c ON c.id = i.id
LEFT JOIN plant.dropped AS d ON d.what = not_dropped.what AND d.retention = coalesce(c.retention, 'default')
WHERE d.until IS NULL OR d.until <= at
$$;

CREATE TABLE plant.job_run (
    id         bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job        text        NOT NULL,
    started_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    ended_at   timestamptz,
    outcome    text        CHECK (outcome IN ('ok', 'failed', 'skipped')),
    rows       bigint,
    bytes      bigint,
    detail     text        NOT NULL DEFAULT '',
    CHECK ((ended_at IS NULL) = (outcome IS NULL))
);
CREATE INDEX job_run_job ON plant.job_run (job, started_at DESC);
COMMENT ON TABLE plant.job_run IS 'Runs of the jobs of maintenance. No outcome: it runs, or was killed and has not been tried again yet.';

-- A day a chunk, as in samples_raw: a day can go, and gives its room back, without its neighbours.
SELECT public.set_chunk_time_interval('plant.samples_packed', INTERVAL '1 day');

------------------------------------------------------------------------------------------------------ what is kept where

-- The tables that hold a kind of data, and their column of time. Some may be missing, or be views of others: what is
-- there is looked up.
CREATE FUNCTION plant.retained(what text) RETURNS TABLE (relation regclass, column_name name)
LANGUAGE sql STABLE
SET search_path = pg_catalog
AS $$
WITH RECURSIVE
named (relation) AS (
    SELECT to_regclass('plant.' || n.name)
    FROM unnest(CASE what WHEN 'raw' THEN ARRAY['samples_raw', 'samples_packed']
                          WHEN '1m' THEN ARRAY['samples_1m', 'states_1m', 'event_count_1m']
                          WHEN '1h' THEN ARRAY['samples_1h', 'states_1h']
                          WHEN 'event' THEN ARRAY['event'] END) AS n (name)
),
behind (relation) AS (
    SELECT n.relation FROM named AS n WHERE n.relation IS NOT NULL
    UNION
    SELECT d.refobjid::regclass
    FROM behind AS b
    JOIN pg_class AS v ON v.oid = b.relation AND v.relkind = 'v'
    JOIN pg_rewrite AS r ON r.ev_class = v.oid
    JOIN pg_depend AS d ON d.classid = 'pg_rewrite'::regclass AND d.objid = r.oid AND d.refclassid = 'pg_class'::regclass
    WHERE d.refobjid <> v.oid
)
SELECT b.relation, a.attname
FROM behind AS b
JOIN pg_class AS c ON c.oid = b.relation AND c.relkind IN ('r', 'p')
JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
    AND a.attname = CASE WHEN c.relname = 'samples_packed' THEN 'hour'
                         WHEN c.relname LIKE '%\_packed' THEN 'day' -- of minutes: a row a channel and day
                         WHEN what IN ('1m', '1h') THEN 'bucket' ELSE 'time' END
WHERE EXISTS (SELECT FROM pg_attribute AS i WHERE i.attrelid = c.oid AND i.attname = 'channel_id')
$$;

-- The oldest time in a table without chunks, by one look into its key for each channel.
CREATE FUNCTION plant.oldest_in(relation regclass, column_name name) RETURNS timestamptz
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog
AS $$
DECLARE
    oldest timestamptz;
BEGIN
    EXECUTE format('SELECT min(o.oldest)
                    FROM (SELECT c.id FROM plant.channel AS c UNION ALL SELECT 0) AS c (id)
                    CROSS JOIN LATERAL (SELECT r.%1$I AS oldest FROM %2$s AS r WHERE r.channel_id = c.id
                                        ORDER BY r.%1$I LIMIT 1) AS o', column_name, relation) INTO oldest;
    RETURN oldest;
END
$$;

-- The chunks of a table.
CREATE FUNCTION plant.chunks_of(relation regclass)
RETURNS TABLE (chunk regclass, from_time timestamptz, to_time timestamptz, bytes bigint)
LANGUAGE sql STABLE
SET search_path = pg_catalog
AS $$ -- a text: nothing of ours may depend on a view of TimescaleDB's, which its updates make anew
SELECT format('%I.%I', k.chunk_schema, k.chunk_name)::regclass, k.range_start, k.range_end, d.total_bytes
FROM pg_class AS c
JOIN timescaledb_information.chunks AS k
    ON k.hypertable_name = c.relname AND k.hypertable_schema = c.relnamespace::regnamespace::name
JOIN public.chunks_detailed_size(relation) AS d ON d.chunk_schema = k.chunk_schema AND d.chunk_name = k.chunk_name
WHERE c.oid = relation
$$;

-- What of a kind there is, in units that can go: chunks, or the days of a table that has none, oldest first. bytes are
-- all of a chunk's (indexes, TOAST and columnstore too); of a day of a table its share.
CREATE FUNCTION plant.retention_units(what text)
RETURNS TABLE (relation regclass, column_name name, chunk regclass, from_time timestamptz, to_time timestamptz, bytes bigint)
LANGUAGE sql STABLE
SET search_path = pg_catalog
AS $$
WITH
tables AS MATERIALIZED (
    SELECT r.relation, r.column_name, h.hypertable_name IS NOT NULL AS chunked
    FROM plant.retained(what) AS r
    JOIN pg_class AS c ON c.oid = r.relation
    LEFT JOIN timescaledb_information.hypertables AS h
        ON h.hypertable_schema = c.relnamespace::regnamespace::name AND h.hypertable_name = c.relname
),
chunks AS (
    SELECT t.relation, t.column_name, k.chunk, k.from_time, k.to_time, k.bytes
    FROM tables AS t
    CROSS JOIN LATERAL plant.chunks_of(t.relation) AS k
    WHERE t.chunked
),
lengths AS (
    SELECT t.relation, t.column_name, date_trunc('day', plant.oldest_in(t.relation, t.column_name), 'UTC') AS first_day,
           pg_total_relation_size(t.relation) AS bytes
    FROM tables AS t
    WHERE NOT t.chunked
),
days AS (
    SELECT l.relation, l.column_name, NULL::regclass, d.day, d.day + INTERVAL '24 hours',
           (l.bytes / count(*) OVER (PARTITION BY l.relation))::bigint
    FROM lengths AS l
    CROSS JOIN LATERAL generate_series(l.first_day, now(), INTERVAL '24 hours') AS d (day)
)
SELECT u.* FROM (SELECT * FROM chunks UNION ALL SELECT * FROM days) AS u ORDER BY u.from_time, u.relation::text
$$;

-- The channels that have rows in a table between two times, by one index look-up each; 0 stands for rows of no channel.
CREATE FUNCTION plant.channels_between(relation regclass, column_name name, from_time timestamptz, to_time timestamptz)
RETURNS int[]
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog
AS $$
DECLARE
    found int[];
BEGIN
    EXECUTE format($query$
        WITH RECURSIVE found (channel_id) AS (
            (SELECT r.channel_id FROM %1$s AS r
             WHERE r.%2$I >= %3$L AND r.%2$I < %4$L AND r.channel_id IS NOT NULL ORDER BY r.channel_id LIMIT 1)
            UNION ALL
            SELECT (SELECT r.channel_id FROM %1$s AS r
                    WHERE r.%2$I >= %3$L AND r.%2$I < %4$L AND r.channel_id > f.channel_id ORDER BY r.channel_id LIMIT 1)
            FROM found AS f
            WHERE f.channel_id IS NOT NULL
        )
        SELECT coalesce(array_agg(f.channel_id ORDER BY f.channel_id), '{}') FROM found AS f WHERE f.channel_id IS NOT NULL
    $query$, relation, column_name, from_time, to_time) INTO found;
    IF relation = 'plant.event'::regclass AND NOT 0 = ANY (found)
       AND EXISTS (SELECT FROM plant.event AS e WHERE e.channel_id IS NULL AND e.time >= from_time AND e.time < to_time) THEN
        found := 0 || found;
    END IF;
    RETURN found;
END
$$;

------------------------------------------------------------------------------------------------------ what may not go

-- The first moment of what is open: the day (UTC) that has not ended for as long as late data is waited for.
CREATE FUNCTION plant.closed_until() RETURNS timestamptz
LANGUAGE sql STABLE
SET search_path = pg_catalog
AS $$
SELECT date_trunc('day', now() - INTERVAL '1 second' * coalesce(
    (SELECT s.value::float8 FROM plant.setting AS s WHERE s.key = 'lateness'), 3600), 'UTC')
$$;
COMMENT ON FUNCTION plant.closed_until IS 'Days (UTC) that end by then are closed: their time for late data is over.';

-- Whether seals are wanted and a day between two times has samples and no seal.
CREATE FUNCTION plant.lacks_seal(from_time timestamptz, to_time timestamptz) RETURNS boolean
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog
SET timezone = 'UTC'
AS $$
DECLARE
    day    date;
    sealed boolean := false;
BEGIN
    IF coalesce((SELECT s.value FROM plant.setting AS s WHERE s.key = 'sealing'), 'off') <> 'on' THEN
        RETURN false;
    END IF;
    FOR day IN SELECT generate_series(date_trunc('day', from_time), to_time - INTERVAL '1 microsecond', INTERVAL '1 day') LOOP
        IF to_regclass('plant.day_seal') IS NOT NULL THEN
            EXECUTE 'SELECT EXISTS (SELECT FROM plant.day_seal AS s WHERE s.day = $1)' INTO sealed USING day;
        END IF;
        IF NOT sealed AND (
            EXISTS (SELECT FROM plant.samples_raw AS r WHERE r.time >= day AND r.time < day + 1)
            OR EXISTS (SELECT FROM plant.samples_packed AS p WHERE p.hour >= day AND p.hour < day + 1)) THEN
            RETURN true;
        END IF;
    END LOOP;
    RETURN false;
END
$$;

-- Whether minutes, or hours, between two times are yet to be made: from raw data that would be gone, or from minutes.
CREATE FUNCTION plant.awaits_rollups(what text, from_time timestamptz, to_time timestamptz) RETURNS boolean
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog
AS $$
DECLARE
    dirty boolean := false;
BEGIN
    IF what IN ('raw', '1m') AND to_regclass('plant.rollup_dirty') IS NOT NULL THEN
        EXECUTE 'SELECT EXISTS (SELECT FROM plant.rollup_dirty AS d
                                WHERE d.from_time < $2 AND d.to_time > $1 AND (NOT d.hours OR $3))'
        INTO dirty USING from_time, to_time, what = '1m';
    END IF;
    RETURN dirty;
END
$$;

------------------------------------------------------------------------------------------------------ what goes

-- Drop the rows of some classes (NULL: of all) in one table between two times, or say what would go. One row, or none
-- where there is nothing of those classes. action: chunk (all of it goes, and its room is free at once), rows (the
-- chunk keeps other classes' or other days'), unsealed, open, dirty (kept, and why: dirty ones have
-- rollups to be made). Rows of packed hours are samples.
--
-- rows and bytes: what the chunk is known to have, by the share that goes; rows are counted where that is quick, else
-- the planner's estimate. Locks are waited for shortly: long readers make it fail, and it is tried again.
CREATE FUNCTION plant.drop_slice(what text, relation regclass, from_time timestamptz, to_time timestamptz, classes text[],
                                 why text, dry_run boolean)
RETURNS TABLE (day timestamptz, retention text[], channels int, rows bigint, bytes bigint, action text)
LANGUAGE plpgsql
SECURITY DEFINER -- dropping chunks takes their owner
SET search_path = pg_catalog
SET timezone = 'UTC'
SET plan_cache_mode = force_custom_plan
SET jit = off
AS $$
DECLARE
    quick   CONSTANT bigint := 268435456; -- bytes of rows that are counted
    -- What says that something was removed outlives what was removed.
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
        -- Nothing is packed meanwhile: rows would appear in the other form behind us. Nobody waits behind this lock.
        PERFORM set_config('lock_timeout', '30s', true);
        PERFORM pg_advisory_xact_lock(CASE WHEN what IN ('1m', '1h') THEN 7361023400154 ELSE 7361023400153 END);
        PERFORM set_config('lock_timeout', '2s', true);
    END IF;
    SELECT t.column_name, k.chunk, k.from_time, k.to_time, k.bytes INTO unit
    FROM plant.retained(what) AS t
    CROSS JOIN LATERAL plant.chunks_of(t.relation) AS k
    WHERE t.relation = drop_slice.relation AND k.from_time <= drop_slice.from_time AND k.to_time >= drop_slice.to_time;
    IF NOT FOUND THEN -- a table without chunks
        SELECT u.column_name, u.chunk, u.from_time, u.to_time, u.bytes INTO unit
        FROM plant.retention_units(what) AS u
        WHERE u.relation = drop_slice.relation AND u.from_time <= drop_slice.from_time AND u.to_time >= drop_slice.to_time;
        IF NOT FOUND THEN
            RETURN;
        END IF;
    END IF;
    present := plant.channels_between(relation, unit.column_name, from_time, to_time);
    SELECT array_agg(p.id ORDER BY p.id), array_agg(DISTINCT coalesce(c.retention, 'default'))
    INTO going, retention
    FROM unnest(present) AS p (id)
    LEFT JOIN plant.channel AS c ON c.id = p.id
    WHERE classes IS NULL OR coalesce(c.retention, 'default') = ANY (classes);
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
    IF unit.chunk IS NOT NULL AND unit.bytes > quick AND what = 'raw' AND relation <> 'plant.samples_packed'::regclass THEN
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
    ELSIF plant.awaits_rollups(what, from_time, to_time) THEN
        action := 'dirty';
    ELSIF NOT dry_run THEN
        IF action = 'chunk' THEN
            PERFORM public.drop_chunks(relation, older_than => unit.to_time, newer_than => unit.from_time);
        ELSE
            -- Only events may have no channel. The bare column lets a columnstore drop its batches as they are: with
            -- coalesce all channels of the day became rows again.
            EXECUTE format('DELETE FROM %1$s AS r WHERE r.%2$I >= $1 AND r.%2$I < $2 AND %4$s = ANY ($3) %3$s',
                           relation, unit.column_name, others,
                           CASE what WHEN 'event' THEN 'coalesce(r.channel_id, 0)' ELSE 'r.channel_id' END)
                USING from_time, to_time, going;
        END IF;
        INSERT INTO plant.dropped AS d (what, retention, until)
        SELECT drop_slice.what, c.name, to_time FROM unnest(drop_slice.retention) AS c (name)
        ON CONFLICT ON CONSTRAINT dropped_pkey DO UPDATE SET until = excluded.until WHERE d.until < excluded.until;
        PERFORM plant.record_retention(format('%s of %s', relation, to_char(from_time, 'YYYY-MM-DD')), jsonb_build_object(
            'what', what, 'relation', relation::text, 'from', from_time, 'to', to_time, 'why', why, 'action', action,
            'classes', to_jsonb(retention), 'channels', channels, 'rows', rows, 'bytes', bytes,
            'channel_ids', (SELECT range_agg(int4range(i, i, '[]')) FROM unnest(going) AS g (i))::text));
    END IF;
    RETURN NEXT;
END
$$;

-- Put on record what retention did or can't do.
CREATE FUNCTION plant.record_retention(said text, detail jsonb) RETURNS void
LANGUAGE sql
SECURITY DEFINER
SET search_path = pg_catalog
AS $$
INSERT INTO plant.event (time, id, type, text, detail)
SELECT t.at, hashtextextended(concat_ws(' ', t.at, said, detail), 11) & 9223372036854775807, 'retention', said, detail
FROM (SELECT clock_timestamp() AS at) AS t
ON CONFLICT (time, id) DO NOTHING
$$;

-- Drop what is before t of a kind (raw, 1m, 1h, event) and a class (NULL: all), oldest first, or say what would go.
CREATE FUNCTION plant.drop_before(t timestamptz, what text, class text, dry_run boolean)
RETURNS TABLE (relation text, day timestamptz, channels int, bytes bigint, action text)
LANGUAGE sql
SET search_path = pg_catalog
AS $$
SELECT u.relation::text, s.day, s.channels, s.bytes, s.action
FROM plant.retention_units(what) AS u
CROSS JOIN LATERAL plant.drop_slice(what, u.relation, u.from_time, least(u.to_time, t),
                                    CASE WHEN class IS NOT NULL THEN ARRAY[class] END, 'asked for', dry_run) AS s
WHERE u.from_time < least(t, plant.closed_until())
$$;
COMMENT ON FUNCTION plant.drop_before IS 'Drop what is before t of a kind (raw, 1m, 1h, event) and a class (NULL: all); dry_run: say what would go. Never the open day, nor an unsealed one where days are sealed.';

-- What the classes' ages say must go, as slices for plant.drop_slice, oldest first. Days are closed ones; of a chunk
-- that is only partly old enough the part goes.
CREATE FUNCTION plant.retention_due()
RETURNS TABLE (what text, relation regclass, from_time timestamptz, to_time timestamptz, classes text[])
LANGUAGE sql STABLE
SET search_path = pg_catalog
AS $$
WITH
cutoffs AS MATERIALIZED (
    SELECT k.what, c.name AS class,
           date_trunc('day', plant.closed_until() - CASE k.what WHEN 'raw' THEN c.raw WHEN '1m' THEN c.minute
                                                                WHEN '1h' THEN c.hour ELSE c.event END, 'UTC') AS cutoff
    FROM plant.retention_class AS c
    CROSS JOIN unnest(ARRAY['raw', '1m', '1h', 'event']) AS k (what)
),
aged AS (
    SELECT c.* FROM cutoffs AS c WHERE c.cutoff IS NOT NULL
)
SELECT a.what, u.relation, u.from_time, least(u.to_time, a.cutoff), array_agg(a.class ORDER BY a.class)
FROM (SELECT DISTINCT a.what FROM aged AS a) AS w
CROSS JOIN LATERAL plant.retention_units(w.what) AS u
JOIN aged AS a ON a.what = w.what AND a.cutoff > u.from_time
GROUP BY a.what, u.relation, u.from_time, least(u.to_time, a.cutoff)
ORDER BY u.from_time, a.what, u.relation::text, 4
$$;

------------------------------------------------------------------------------------------------------ chunks ahead

-- Make the chunks of a table that will hold t, and how many were made. A chunk is made by a row that is deleted in the
-- same transaction: nobody sees it. (TimescaleDB's own function for it is not in the Apache-2 edition.)
CREATE FUNCTION plant.make_chunk(relation regclass, t timestamptz) RETURNS int
LANGUAGE plpgsql
SECURITY DEFINER -- who makes chunks ahead need not be able to write or delete samples
SET search_path = pg_catalog
SET lock_timeout = '2s'
AS $$
DECLARE
    dimension name;
    "columns" text;
    "values"  text;
    made      regclass;
    row_at    tid;
BEGIN
    SELECT d.column_name INTO dimension
    FROM timescaledb_information.dimensions AS d
    JOIN pg_class AS c ON c.oid = relation AND c.relname = d.hypertable_name
        AND c.relnamespace::regnamespace::name = d.hypertable_schema
    WHERE d.hypertable_schema = 'plant' AND d.time_interval IS NOT NULL;
    IF NOT FOUND OR EXISTS (
        SELECT FROM timescaledb_information.chunks AS k
        JOIN pg_class AS c ON c.oid = relation AND c.relname = k.hypertable_name
        WHERE k.hypertable_schema = 'plant' AND k.range_start <= t AND k.range_end > t) THEN
        RETURN 0;
    END IF;
    SELECT string_agg(quote_ident(a.attname), ', '),
           string_agg(CASE WHEN a.attname = dimension THEN '$1'
                           WHEN a.atttypid = 'jsonb'::regtype THEN '''{}'''
                           WHEN a.atttypid = 'timestamptz'::regtype THEN '$1'
                           ELSE quote_literal('1') END, ', ')
    INTO "columns", "values"
    FROM pg_attribute AS a
    WHERE a.attrelid = relation AND a.attnum > 0 AND NOT a.attisdropped AND a.attnotnull AND NOT a.atthasdef
      AND a.attidentity = '';
    EXECUTE format('INSERT INTO %s AS r (%s) VALUES (%s) RETURNING r.tableoid, r.ctid', relation, "columns", "values")
    INTO made, row_at USING t;
    EXECUTE format('DELETE FROM %s AS r WHERE r.ctid = $1', made) USING row_at;
    RETURN 1;
END
$$;

------------------------------------------------------------------------------------------------------ who may

-- The login for what retention, statistics and trimming take: it changes no sample, event, seal or setting by itself, and
-- drops by the rules above. (Compression and seals take the owner.)
DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'plant_maintenance') THEN
        BEGIN
            CREATE ROLE plant_maintenance NOLOGIN;
        EXCEPTION WHEN duplicate_object OR unique_violation THEN
            NULL; -- roles are the server's: another database's migration made it in this moment
        END;
    END IF;
END
$$;
GRANT USAGE ON SCHEMA plant TO plant_maintenance;
-- MAINTAIN is for ANALYZE. What a migration behind this one makes, has it from the default privileges.
GRANT SELECT, MAINTAIN ON ALL TABLES IN SCHEMA plant TO plant_maintenance;
ALTER DEFAULT PRIVILEGES IN SCHEMA plant GRANT SELECT, MAINTAIN ON TABLES TO plant_maintenance;
GRANT INSERT, UPDATE, DELETE ON plant.job_run TO plant_maintenance;
GRANT DELETE ON plant.ingest_batch, plant.quarantine TO plant_maintenance;
GRANT SELECT ON plant.retention_class, plant.dropped, plant.job_run TO plant_reader, plant_ingest;
GRANT ALL ON plant.retention_class, plant.dropped, plant.job_run TO plant_owner;

DO $$
DECLARE
    lent regprocedure;
BEGIN
    FOREACH lent IN ARRAY ARRAY[
        'plant.drop_slice(text, regclass, timestamptz, timestamptz, text[], text, boolean)',
        'plant.make_chunk(regclass, timestamptz)', 'plant.record_retention(text, jsonb)']::regprocedure[] LOOP
        EXECUTE format('REVOKE EXECUTE ON FUNCTION %s FROM PUBLIC', lent);
        EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO plant_maintenance, plant_owner', lent);
    END LOOP;
END
$$;
