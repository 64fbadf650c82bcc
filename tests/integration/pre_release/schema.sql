-- What the migrations up to 36 made, as pg_dump writes it, hypertables by the call that made them; then migrations 37 and 38,
-- the last before 1.0, and what the files of that time made beside them.
-- Roles and what stands outside the schema plant, as those migrations had it.
DO $$
DECLARE
    role text;
BEGIN
    FOREACH role IN ARRAY ARRAY['plant_owner', 'plant_ingest', 'plant_reader'] LOOP
        IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = role) THEN
            BEGIN
                EXECUTE format('CREATE ROLE %I NOLOGIN', role);
            EXCEPTION WHEN duplicate_object OR unique_violation THEN
                NULL; -- roles are the server's: another database's migration made it in this moment
            END;
        END IF;
    END LOOP;
END
$$;
DO $$
BEGIN
    -- The conflict lane stages in a temporary table.
    EXECUTE format('GRANT TEMPORARY ON DATABASE %I TO plant_ingest', current_database());
END
$$;
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
DO $$
DECLARE
    taken record;
BEGIN
    FOR taken IN
        SELECT p.oid::regprocedure AS name, p.proname LIKE '%advisory%' AS locks
        FROM pg_proc AS p
        WHERE p.pronamespace = 'pg_catalog'::regnamespace
          AND (p.proname ~ '^pg_(try_)?advisory_(xact_)?lock' OR p.proname ~ '^(lo_.*|loread|lowrite)$' OR p.proname = 'pg_logical_emit_message')
    LOOP
        EXECUTE format('REVOKE EXECUTE ON FUNCTION %s FROM PUBLIC', taken.name);
        IF taken.locks THEN
            EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO plant_owner, plant_ingest, plant_maintenance, CURRENT_USER', taken.name);
        END IF;
    END LOOP;
    EXECUTE format('REVOKE TEMPORARY ON DATABASE %I FROM PUBLIC', current_database());
END
$$;
DO $$
DECLARE
    job regprocedure;
BEGIN
    FOR job IN SELECT p.oid FROM pg_proc AS p
               WHERE p.pronamespace = 'public'::regnamespace AND p.proname IN ('add_job', 'alter_job', 'run_job', 'delete_job')
    LOOP
        EXECUTE format('REVOKE EXECUTE ON ROUTINE %s FROM PUBLIC', job);
        EXECUTE format('GRANT EXECUTE ON ROUTINE %s TO plant_owner, CURRENT_USER', job);
    END LOOP;
END
$$;

SELECT pg_catalog.set_config('search_path', '', false);
SET check_function_bodies = false;
SET client_min_messages = warning;

CREATE SCHEMA IF NOT EXISTS plant;

CREATE TYPE plant.packed_numbers AS (
	base double precision,
	divisor double precision,
	single boolean,
	v0 "char"[],
	v1 "char"[],
	v2 "char"[],
	v3 "char"[],
	float4s real[],
	float8s double precision[]
);

CREATE TYPE plant.series_part AS (
	bucket timestamp with time zone,
	at timestamp with time zone,
	n bigint,
	n_good bigint,
	min double precision,
	max double precision,
	sum double precision,
	first double precision,
	last double precision
);

CREATE TABLE plant.channel (
    id integer NOT NULL,
    name text NOT NULL,
    source_id integer NOT NULL,
    address text NOT NULL,
    kind text NOT NULL,
    unit text DEFAULT ''::text NOT NULL,
    range_lo double precision,
    range_hi double precision,
    deadband double precision DEFAULT 0 NOT NULL,
    description text DEFAULT ''::text NOT NULL,
    attributes jsonb DEFAULT '{}'::jsonb NOT NULL,
    retired_at timestamp with time zone,
    retention text DEFAULT 'default'::text NOT NULL,
    configured_at timestamp with time zone DEFAULT clock_timestamp(),
    retirements tstzmultirange DEFAULT '{}'::tstzmultirange NOT NULL,
    CONSTRAINT channel_kind_check CHECK ((kind = ANY (ARRAY['analog'::text, 'discrete'::text, 'counter'::text, 'text'::text])))
);

COMMENT ON TABLE plant.channel IS 'One tag. name is a slash path: plant area, unit, quantity. An id is never given twice.';

COMMENT ON COLUMN plant.channel.address IS 'OPC UA: node id. Modbus: table:register, from 0. Push: what the source''s template makes of line and field; equal to name where the source created the channel.';

COMMENT ON COLUMN plant.channel.retention IS 'Class of retention: a row of plant.retention_class.';

COMMENT ON COLUMN plant.channel.configured_at IS 'Since when the channel is known here; NULL: longer than this was noted.';

COMMENT ON COLUMN plant.channel.retirements IS 'When it was retired before it came back: nothing is expected of that time.';

CREATE FUNCTION plant._facts(c plant.channel) RETURNS jsonb
    LANGUAGE sql STABLE
    SET search_path TO 'pg_catalog'
    AS $$
SELECT c.attributes || (to_jsonb(c) - ARRAY['id', 'source_id', 'attributes', 'retirements'])
       || jsonb_build_object('source', (SELECT s.name FROM plant.source AS s WHERE s.id = c.source_id))
$$;

CREATE PROCEDURE plant._pack_chunks(IN t timestamp with time zone, IN only_begun boolean)
    LANGUAGE plpgsql
    AS $$
DECLARE
    target   CONSTANT int := 250000; -- rows a transaction
    most     CONSTANT int := 1000;   -- channels a transaction
    day      record;
    channels int[];
    hour     timestamptz;
    done     int;
    batch    int := 32; -- channels, as many as made up the target the last time
    moved    bigint;
BEGIN
    FOR day IN SELECT k.* FROM plant._raw_chunks(t) AS k WHERE NOT k.columnstored AND (k.packed OR NOT only_begun) LOOP
        channels := plant.channels_in_raw(day.from_time, day.to_time);
        hour := day.from_time;
        WHILE hour + INTERVAL '1 hour' <= least(t, day.to_time) LOOP
            done := 0;
            WHILE done < cardinality(channels) LOOP
                moved := plant.pack_hour(hour, channels[done + 1 : done + batch]);
                COMMIT;
                IF moved IS NULL THEN
                    RAISE NOTICE 'another session is compressing';
                    RETURN;
                END IF;
                done := done + batch;
                batch := greatest(1, least(most, 2 * batch, batch * target / greatest(moved, 1)));
            END LOOP;
            hour := hour + INTERVAL '1 hour';
        END LOOP;
        IF day.to_time <= t THEN
            PERFORM plant.drop_packed_chunk(day.chunk, day.from_time, day.to_time);
            COMMIT;
        END IF;
    END LOOP;
    DELETE FROM plant.packed_chunk AS c WHERE to_regclass(c.chunk) IS NULL;
    FOR day IN SELECT c.chunk, c.from_time, c.to_time FROM plant.packed_chunk AS c LOOP
        PERFORM plant.drop_packed_chunk(day.chunk, day.from_time, day.to_time);
        COMMIT;
    END LOOP;
END
$$;

CREATE FUNCTION plant._packed_days() RETURNS SETOF timestamp with time zone
    LANGUAGE sql STABLE PARALLEL SAFE
    SET search_path TO 'pg_catalog'
    AS $$
SELECT generate_series(k.range_start, k.range_end - INTERVAL '1 day', INTERVAL '1 day', 'UTC')
FROM timescaledb_information.chunks AS k
WHERE k.hypertable_schema = 'plant' AND k.hypertable_name = 'samples_packed'
$$;

CREATE FUNCTION plant._raw_chunks(t timestamp with time zone) RETURNS TABLE(chunk text, from_time timestamp with time zone, to_time timestamp with time zone, columnstored boolean, packed boolean)
    LANGUAGE sql STABLE
    SET search_path TO 'pg_catalog'
    AS $$
SELECT format('%I.%I', k.chunk_schema, k.chunk_name), k.range_start, k.range_end, k.is_compressed,
       EXISTS (SELECT FROM timescaledb_information.chunks AS p
               WHERE p.hypertable_schema = 'plant' AND p.hypertable_name = 'samples_packed'
                 AND p.range_start < k.range_end AND p.range_end > k.range_start)
FROM timescaledb_information.chunks AS k
WHERE k.hypertable_schema = 'plant' AND k.hypertable_name = 'samples_raw' AND k.range_start < t
ORDER BY k.range_start
$$;

CREATE FUNCTION plant._record_change(type text, at timestamp with time zone, source integer, channel integer, name text, old jsonb, new jsonb) RETURNS void
    LANGUAGE sql
    SET search_path TO 'pg_catalog'
    AS $$
WITH differing AS (
    SELECT coalesce(o.key, n.key) AS key, o.value AS old, n.value AS new
    FROM jsonb_each(coalesce(_record_change.old, '{}')) AS o
    FULL JOIN jsonb_each(coalesce(_record_change.new, '{}')) AS n ON n.key = o.key
    WHERE o.value IS DISTINCT FROM n.value
),
said AS (
    SELECT string_agg(concat(d.key, ' ', coalesce(nullif(d.old #>> '{}', ''), 'none'), ' → ',
                             coalesce(nullif(d.new #>> '{}', ''), 'none')), ', ' ORDER BY d.key) AS words,
           jsonb_build_object('name', _record_change.name, 'by', session_user,
                              'old', coalesce(jsonb_object_agg(d.key, d.old) FILTER (WHERE d.old IS NOT NULL), '{}'),
                              'new', coalesce(jsonb_object_agg(d.key, d.new) FILTER (WHERE d.new IS NOT NULL), '{}'))
               AS detail
    FROM differing AS d
    HAVING count(*) > 0
)
INSERT INTO plant.event (time, id, type, source_id, channel_id, text, detail)
SELECT at, hashtextextended(concat_ws(' ', at::text, type, source::text, channel::text, s.detail::text), 20)
           & 9223372036854775807,
       type, source, channel, s.words, s.detail
FROM said AS s
$$;

CREATE FUNCTION plant._record_row_change() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog'
    AS $$
DECLARE
    aside  text[] := ARRAY['id', 'state', 'state_since', 'reason', 'installation_id'];
    former jsonb := to_jsonb(OLD) - aside;
    fresh  jsonb := CASE TG_OP WHEN 'UPDATE' THEN to_jsonb(NEW) - aside END;
BEGIN
    PERFORM plant._record_change(TG_ARGV[0], clock_timestamp(), (to_jsonb(OLD) ->> 'id')::int, NULL,
                                 coalesce(former ->> 'name', former ->> 'key'), former, fresh);
    RETURN NULL;
END
$$;

CREATE TABLE plant.samples_packed (
    hour timestamp with time zone NOT NULL,
    start timestamp with time zone NOT NULL,
    step bigint NOT NULL,
    base double precision NOT NULL,
    divisor double precision NOT NULL,
    channel_id integer NOT NULL,
    n integer NOT NULL,
    unit integer NOT NULL,
    status integer NOT NULL,
    single boolean NOT NULL,
    t0 "char"[],
    t1 "char"[],
    t2 "char"[],
    t3 "char"[],
    v0 "char"[],
    v1 "char"[],
    v2 "char"[],
    v3 "char"[],
    float4s real[],
    float8s double precision[],
    statuses integer[],
    CONSTRAINT samples_packed_n_check CHECK ((n > 0)),
    CONSTRAINT samples_packed_step_check CHECK ((step > 0))
);
ALTER TABLE ONLY plant.samples_packed ALTER COLUMN t0 SET COMPRESSION lz4;
ALTER TABLE ONLY plant.samples_packed ALTER COLUMN t1 SET COMPRESSION lz4;
ALTER TABLE ONLY plant.samples_packed ALTER COLUMN t2 SET COMPRESSION lz4;
ALTER TABLE ONLY plant.samples_packed ALTER COLUMN t3 SET COMPRESSION lz4;
ALTER TABLE ONLY plant.samples_packed ALTER COLUMN v0 SET COMPRESSION lz4;
ALTER TABLE ONLY plant.samples_packed ALTER COLUMN v1 SET COMPRESSION lz4;
ALTER TABLE ONLY plant.samples_packed ALTER COLUMN v2 SET COMPRESSION lz4;
ALTER TABLE ONLY plant.samples_packed ALTER COLUMN v3 SET COMPRESSION lz4;
ALTER TABLE ONLY plant.samples_packed ALTER COLUMN float4s SET COMPRESSION lz4;
ALTER TABLE ONLY plant.samples_packed ALTER COLUMN float8s SET COMPRESSION lz4;
ALTER TABLE ONLY plant.samples_packed ALTER COLUMN statuses SET COMPRESSION lz4;

COMMENT ON TABLE plant.samples_packed IS 'An hour of a channel a row; its head says what the columns mean. Read plant.samples or plant.samples_between.';

COMMENT ON COLUMN plant.samples_packed.hour IS 'UTC hour: its samples have hour <= time < hour + 1 h.';

COMMENT ON COLUMN plant.samples_packed.step IS 'µs.';

COMMENT ON COLUMN plant.samples_packed.unit IS 'µs: 1, 1000 or 1000000.';

CREATE FUNCTION plant._sample_from(p plant.samples_packed, at timestamp with time zone) RETURNS integer
    LANGUAGE plpgsql STABLE PARALLEL SAFE
    SET search_path TO 'pg_catalog'
    AS $$
DECLARE
    -- How far t takes a time from its line, and how far the line begins before the time, µs.
    reach  float8 := CASE WHEN p.t0 IS NULL THEN 0 WHEN p.t1 IS NULL THEN 128 WHEN p.t2 IS NULL THEN 32896
                          ELSE 2155905152 END::float8 * p.unit;
    behind float8 := round(date_part('epoch', at - p.start) * 1e6);
    before int    := greatest(0, least(p.n, ceil((behind - reach) / p.step))); -- for certain
    most   int    := greatest(0, least(p.n, ceil((behind + reach) / p.step)));
BEGIN
    IF before < most THEN
        before := before + (SELECT count(*) FROM plant._unpack_slice(p, before + 1, most) AS u WHERE u.time < at);
    END IF;
    RETURN before + 1;
END
$$;

CREATE FUNCTION plant._stored() RETURNS TABLE(relation text, stored oid, day timestamp with time zone, columnstored boolean, rows double precision)
    LANGUAGE sql STABLE
    SET search_path TO 'pg_catalog'
    SET jit TO 'off'
    AS $$
WITH
chunk AS (
    SELECT k.hypertable_name AS relation, to_regclass(format('%I.%I', k.chunk_schema, k.chunk_name))::oid AS stored,
           k.range_start AS day, k.is_compressed AS columnstored
    FROM timescaledb_information.chunks AS k
    WHERE k.hypertable_schema = 'plant'
),
plain AS (
    SELECT c.relname AS relation, c.oid AS stored
    FROM pg_class AS c
    WHERE c.relnamespace = 'plant'::regnamespace AND c.relkind = 'r'
      AND c.relname NOT IN (SELECT h.hypertable_name FROM timescaledb_information.hypertables AS h
                            WHERE h.hypertable_schema = 'plant')
),
each AS (
    SELECT k.relation, k.stored, k.day, k.columnstored FROM chunk AS k
    UNION ALL
    SELECT p.relation, p.stored, NULL, false FROM plain AS p
),
-- The mean of n, from its most common values and the bounds of equally many others.
mean AS (
    SELECT to_regclass(format('%I.%I', s.schemaname, s.tablename))::oid AS stored,
           coalesce((SELECT sum(v.n * f.share)
                     FROM unnest(s.most_common_vals::text::float8[], s.most_common_freqs) AS f (n, share)
                     CROSS JOIN LATERAL (SELECT f.n) AS v), 0)
           + coalesce((SELECT avg(b.n) FROM unnest(s.histogram_bounds::text::float8[]) AS b (n))
                      * (1 - (SELECT coalesce(sum(f.share), 0) FROM unnest(s.most_common_freqs) AS f (share))), 0) AS n
    FROM pg_stats AS s
    WHERE s.attname = 'n' AND (s.schemaname, s.tablename) IN (
        SELECT k.chunk_schema, k.chunk_name FROM timescaledb_information.chunks AS k
        WHERE k.hypertable_schema = 'plant' AND k.hypertable_name = 'samples_packed')
)
SELECT e.relation, e.stored, e.day, e.columnstored,
       CASE WHEN pg_relation_size(e.stored) = 0 THEN 0
            WHEN c.reltuples >= 0 AND c.relpages > 0
            THEN c.reltuples::float8 / c.relpages * (pg_relation_size(e.stored) / current_setting('block_size')::int) END
       * CASE WHEN e.relation = 'samples_packed' THEN m.n ELSE 1 END
FROM each AS e
JOIN pg_class AS c ON c.oid = e.stored
LEFT JOIN mean AS m ON m.stored = e.stored
$$;

CREATE FUNCTION plant._unpack_slice(p plant.samples_packed, i integer, j integer) RETURNS TABLE("time" timestamp with time zone, value double precision, status integer)
    LANGUAGE sql STABLE ROWS 3600 PARALLEL SAFE
    BEGIN ATOMIC
 SELECT
         CASE
             WHEN ((_unpack_slice.p).t0 IS NULL) THEN u.line
             WHEN ((_unpack_slice.p).t1 IS NULL) THEN to_timestamp((((u.us)::double precision + (((_unpack_slice.p).unit * (u.t0)::integer))::double precision) / ('1000000'::numeric)::double precision))
             ELSE to_timestamp((((u.us)::double precision + (((_unpack_slice.p).unit)::double precision * (((((u.t0)::integer + (256 * (u.t1)::integer)) + COALESCE((65536 * (u.t2)::integer), 0)))::double precision + COALESCE(((16777216)::double precision * ((u.t3)::integer)::double precision), (0)::double precision)))) / ('1000000'::numeric)::double precision))
         END AS to_timestamp,
     COALESCE(u.float8s, (u.float4s)::double precision,
         CASE
             WHEN (_unpack_slice.p).single THEN ((((((_unpack_slice.p).base + (COALESCE((u.v0)::integer, 0))::double precision) + (COALESCE((256 * (u.v1)::integer), 0))::double precision) / (_unpack_slice.p).divisor))::real)::double precision
             WHEN ((_unpack_slice.p).v1 IS NULL) THEN (((_unpack_slice.p).base + (COALESCE((u.v0)::integer, 0))::double precision) / (_unpack_slice.p).divisor)
             WHEN ((_unpack_slice.p).v2 IS NULL) THEN ((((_unpack_slice.p).base + ((u.v0)::integer)::double precision) + ((256 * (u.v1)::integer))::double precision) / (_unpack_slice.p).divisor)
             ELSE ((((((_unpack_slice.p).base + ((u.v0)::integer)::double precision) + ((256 * (u.v1)::integer))::double precision) + (COALESCE((65536 * (u.v2)::integer), 0))::double precision) + COALESCE(((16777216)::double precision * ((u.v3)::integer)::double precision), (0)::double precision)) / (_unpack_slice.p).divisor)
         END) AS "coalesce",
     COALESCE(u.statuses, (_unpack_slice.p).status) AS "coalesce"
    FROM ( SELECT generate_series(
                 CASE
                     WHEN ((_unpack_slice.p).t0 IS NULL) THEN ((_unpack_slice.p).start + ('00:00:00.000001'::interval * (((_unpack_slice.p).step * (_unpack_slice.i - 1)))::double precision))
                     ELSE NULL::timestamp with time zone
                 END, ((_unpack_slice.p).start + ('00:00:00.000001'::interval * (((_unpack_slice.p).step * (_unpack_slice.j - 1)))::double precision)), ('00:00:00.000001'::interval * ((_unpack_slice.p).step)::double precision)) AS line,
             generate_series(
                 CASE
                     WHEN ((_unpack_slice.p).t0 IS NOT NULL) THEN (((date_part('epoch'::text, (_unpack_slice.p).start) * ('1000000'::numeric)::double precision))::bigint + ((_unpack_slice.i - 1) * (_unpack_slice.p).step))
                     ELSE NULL::bigint
                 END, (((date_part('epoch'::text, (_unpack_slice.p).start) * ('1000000'::numeric)::double precision))::bigint + ((_unpack_slice.j - 1) * (_unpack_slice.p).step)), (_unpack_slice.p).step) AS us,
             unnest((_unpack_slice.p).t0[_unpack_slice.i:_unpack_slice.j]) AS t0,
             unnest((_unpack_slice.p).t1[_unpack_slice.i:_unpack_slice.j]) AS t1,
             unnest((_unpack_slice.p).t2[_unpack_slice.i:_unpack_slice.j]) AS t2,
             unnest((_unpack_slice.p).t3[_unpack_slice.i:_unpack_slice.j]) AS t3,
             unnest((_unpack_slice.p).v0[_unpack_slice.i:_unpack_slice.j]) AS v0,
             unnest((_unpack_slice.p).v1[_unpack_slice.i:_unpack_slice.j]) AS v1,
             unnest((_unpack_slice.p).v2[_unpack_slice.i:_unpack_slice.j]) AS v2,
             unnest((_unpack_slice.p).v3[_unpack_slice.i:_unpack_slice.j]) AS v3,
             unnest((_unpack_slice.p).float4s[_unpack_slice.i:_unpack_slice.j]) AS float4s,
             unnest((_unpack_slice.p).float8s[_unpack_slice.i:_unpack_slice.j]) AS float8s,
             unnest((_unpack_slice.p).statuses[_unpack_slice.i:_unpack_slice.j]) AS statuses) u;
END;

CREATE FUNCTION plant._version_channels() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog'
    AS $$
DECLARE
    moment timestamptz := clock_timestamp();
    registered boolean := coalesce(current_setting('plant.registration', true), '') = 'on';
BEGIN
    IF TG_OP = 'INSERT' THEN
        INSERT INTO plant.channel_version (channel_id, version, valid_from, name, source_id, address, kind, unit,
                                           range_lo, range_hi, deadband, description, attributes, retention)
        SELECT f.id, 0, '-infinity', f.name, f.source_id, f.address, f.kind, f.unit, f.range_lo, f.range_hi,
               f.deadband, f.description, f.attributes, f.retention
        FROM fresh AS f;
        RETURN NULL;
    END IF;
    PERFORM plant._record_change('channel_changed', moment, f.source_id, f.id, f.name,
                                 plant._facts(former::plant.channel), plant._facts(f::plant.channel))
    FROM fresh AS f
    JOIN former ON former.id = f.id;
    WITH newest AS (
        SELECT DISTINCT ON (v.channel_id) v.*
        FROM plant.channel_version AS v
        JOIN fresh AS f ON f.id = v.channel_id
        ORDER BY v.channel_id, v.version DESC
    ),
    changed AS (
        -- Of another name alone no collector has to know; but what waits is waited for in order.
        SELECT f.*, n.version, n.valid_from IS NULL
               OR registered AND (n.source_id, n.address, n.kind, n.unit, n.range_lo, n.range_hi, n.deadband,
                                  n.description, n.attributes, n.retention)
                                 IS DISTINCT FROM
                                 (f.source_id, f.address, f.kind, f.unit, f.range_lo, f.range_hi, f.deadband,
                                  f.description, f.attributes, f.retention) AS waits,
               -- A clock that was set back must not put the versions out of order.
               greatest(moment, n.valid_from + INTERVAL '1 microsecond') AS since
        FROM fresh AS f
        JOIN newest AS n ON n.channel_id = f.id
        WHERE (n.name, n.source_id, n.address, n.kind, n.unit, n.range_lo, n.range_hi, n.deadband, n.description,
               n.attributes, n.retention)
              IS DISTINCT FROM
              (f.name, f.source_id, f.address, f.kind, f.unit, f.range_lo, f.range_hi, f.deadband, f.description,
               f.attributes, f.retention)
    ),
    ended AS (
        UPDATE plant.channel_version AS v SET valid_to = c.since
        FROM changed AS c
        WHERE v.channel_id = c.id AND v.version = c.version AND NOT c.waits
    )
    INSERT INTO plant.channel_version (channel_id, version, collected, valid_from, name, source_id, address, kind, unit,
                                       range_lo, range_hi, deadband, description, attributes, retention)
    SELECT c.id, c.version + 1, c.waits, CASE WHEN NOT c.waits THEN c.since END, c.name, c.source_id, c.address, c.kind,
           c.unit, c.range_lo, c.range_hi, c.deadband, c.description, c.attributes, c.retention
    FROM changed AS c;
    RETURN NULL;
END
$$;

CREATE FUNCTION plant.awaits_rollups(what text, from_time timestamp with time zone, to_time timestamp with time zone) RETURNS boolean
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog'
    AS $_$
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
$_$;

CREATE FUNCTION plant.breaks(channel integer, since timestamp with time zone, until timestamp with time zone) RETURNS TABLE(from_time timestamp with time zone, to_time timestamp with time zone, reason text, detail text, backfilled boolean)
    LANGUAGE sql STABLE
    AS $$
WITH
gaps AS (
    SELECT g.from_time, g.to_time, g.reason, g.detail, g.backfilled_at IS NOT NULL AS backfilled,
           g.reason = 'poll_missed' AND (g.from_time = lag(g.to_time) OVER by_reason
                                         OR g.to_time = lead(g.from_time) OVER by_reason) AS in_turn
    FROM plant.gap_channel AS g
    WHERE g.channel_id = channel AND g.from_time < until + INTERVAL '10 min'
      AND coalesce(g.to_time, 'infinity') > since - INTERVAL '10 min'
    WINDOW by_reason AS (PARTITION BY g.reason ORDER BY g.from_time)
),
rhythm AS (
    SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY g.to_time - g.from_time) AS length
    FROM gaps AS g
    WHERE g.in_turn
    HAVING count(*) >= 5
)
SELECT g.from_time, g.to_time, g.reason, g.detail, g.backfilled
FROM gaps AS g
LEFT JOIN rhythm AS r ON g.in_turn
WHERE g.from_time < until AND coalesce(g.to_time, 'infinity') > since
  AND (g.to_time - g.from_time <= 3 * r.length) IS NOT TRUE
$$;

CREATE FUNCTION plant.channels_between(relation regclass, column_name name, from_time timestamp with time zone, to_time timestamp with time zone) RETURNS integer[]
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog'
    AS $_$
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
$_$;

CREATE FUNCTION plant.channels_in_minutes(day timestamp with time zone, after integer, most integer) RETURNS integer[]
    LANGUAGE sql STABLE
    SET search_path TO 'pg_catalog'
    SET plan_cache_mode TO 'force_custom_plan'
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

CREATE FUNCTION plant.channels_in_raw(from_time timestamp with time zone, to_time timestamp with time zone) RETURNS integer[]
    LANGUAGE sql STABLE
    SET search_path TO 'pg_catalog'
    AS $$
WITH RECURSIVE found (channel_id) AS (
    (SELECT r.channel_id FROM plant.samples_raw AS r
     WHERE r.time >= from_time AND r.time < to_time
     ORDER BY r.channel_id LIMIT 1)
    UNION ALL
    SELECT (SELECT r.channel_id FROM plant.samples_raw AS r
            WHERE r.time >= from_time AND r.time < to_time AND r.channel_id > f.channel_id
            ORDER BY r.channel_id LIMIT 1)
    FROM found AS f
    WHERE f.channel_id IS NOT NULL
)
SELECT coalesce(array_agg(f.channel_id), '{}') FROM found AS f WHERE f.channel_id IS NOT NULL
$$;

CREATE FUNCTION plant.channels_like(patterns text[]) RETURNS TABLE(channel_id integer, name text, kind text, unit text, low double precision, high double precision, span double precision, unit_path text, quantity text, ends timestamp with time zone)
    LANGUAGE sql STABLE
    AS $_$
SELECT c.id, c.name, c.kind, c.unit, c.range_lo, c.range_hi,
       CASE WHEN c.range_hi > c.range_lo THEN c.range_hi - c.range_lo END,
       regexp_replace(c.name, '/[^/]*$', ''), regexp_replace(c.name, '^.*/', ''),
       coalesce(least(c.retired_at, s.retired_at), 'infinity')
FROM plant.channel AS c
JOIN plant.source AS s ON s.id = c.source_id
WHERE patterns IS NULL
   -- Only * is special: names are full of _, which LIKE would take for any letter. All patterns are turned once.
   OR c.name LIKE ANY (ARRAY(SELECT replace(regexp_replace(p.pattern, '([\\_%])', '\\\1', 'g'), '*', '%')
                             FROM unnest(patterns) AS p (pattern)))
$_$;

CREATE FUNCTION plant.chunks_of(relation regclass) RETURNS TABLE(chunk regclass, from_time timestamp with time zone, to_time timestamp with time zone, bytes bigint)
    LANGUAGE sql STABLE
    SET search_path TO 'pg_catalog'
    AS $$ -- a text: nothing of ours may depend on a view of TimescaleDB's, which its updates make anew
SELECT format('%I.%I', k.chunk_schema, k.chunk_name)::regclass, k.range_start, k.range_end, d.total_bytes
FROM pg_class AS c
JOIN timescaledb_information.chunks AS k
    ON k.hypertable_name = c.relname AND k.hypertable_schema = c.relnamespace::regnamespace::name
JOIN public.chunks_detailed_size(relation) AS d ON d.chunk_schema = k.chunk_schema AND d.chunk_name = k.chunk_name
WHERE c.oid = relation
$$;

CREATE FUNCTION plant.closed_until() RETURNS timestamp with time zone
    LANGUAGE sql STABLE
    SET search_path TO 'pg_catalog'
    AS $$
SELECT date_trunc('day', now() - INTERVAL '1 second' * coalesce(
    (SELECT s.value::float8 FROM plant.setting AS s WHERE s.key = 'lateness'), 3600), 'UTC')
$$;

COMMENT ON FUNCTION plant.closed_until() IS 'Days (UTC) that end by then are closed: their time for late data is over.';

CREATE PROCEDURE plant.compress_before(IN t timestamp with time zone)
    LANGUAGE plpgsql
    AS $$
BEGIN
    PERFORM plant.compression(); -- an illegal one is an error
    CALL plant._pack_chunks(t, false);
END
$$;

COMMENT ON PROCEDURE plant.compress_before(IN t timestamp with time zone) IS 'Pack the whole hours before t, in small transactions that nobody waits for. CALL it outside a transaction.';

CREATE FUNCTION plant.compression() RETURNS text
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog'
    AS $$
DECLARE
    form text := coalesce((SELECT s.value FROM plant.setting AS s WHERE s.key = 'compression'), 'packed');
BEGIN
    IF form <> 'packed' THEN
        RAISE EXCEPTION 'compression is ''%'', but TimescaleDB''s Apache-2 edition has no columnstore', form
            USING ERRCODE = 'feature_not_supported',
                  HINT = 'Set compression = "packed", or run TimescaleDB''s Community edition.';
    END IF;
    RETURN form;
END
$$;

COMMENT ON FUNCTION plant.compression() IS 'The form that closed hours get: packed.';

CREATE FUNCTION plant.conflict_id("time" timestamp with time zone, channel_id integer, detail jsonb) RETURNS bigint
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN (hashtextextended(concat_ws(' '::text, (date_part('epoch'::text, "time"))::text, (channel_id)::text, (detail)::text), (6)::bigint) & '9223372036854775807'::bigint);

CREATE FUNCTION plant.correlation(since timestamp with time zone, until timestamp with time zone, target text, channels text[] DEFAULT NULL::text[], step interval DEFAULT NULL::interval, max_lag interval DEFAULT NULL::interval, least_correlation double precision DEFAULT 0.5) RETURNS TABLE(channel text, correlation double precision, lag_seconds double precision, correlation_at_zero double precision, pairs bigint)
    LANGUAGE sql STABLE
    AS $$
WITH
chosen AS (
    SELECT coalesce(step, greatest((until - since) / 300, INTERVAL '1 s')) AS step
),
lags AS (
    SELECT n.n, n.n * c.step AS by
    FROM chosen AS c
    CROSS JOIN LATERAL (
        SELECT coalesce(floor(extract(epoch FROM max_lag) / extract(epoch FROM c.step)), 20)::int AS most
    ) AS m
    CROSS JOIN LATERAL generate_series(-m.most, m.most) AS n (n)
),
wanted AS (
    SELECT c.channel_id, c.name FROM plant.channels_like(channels) AS c WHERE c.kind <> 'text' AND c.name <> target
),
means AS MATERIALIZED (
    SELECT r.channel_id, r.bucket, r.value
    FROM plant.resampled(channels, since, until, coalesce(step, greatest((until - since) / 300, INTERVAL '1 s'))) AS r
    JOIN wanted AS w ON w.channel_id = r.channel_id
),
target_means AS MATERIALIZED (
    SELECT r.bucket, r.value
    FROM plant.resampled(ARRAY[target], since, until,
                         coalesce(step, greatest((until - since) / 300, INTERVAL '1 s'))) AS r
),
-- A positive lag: what the target did at a time, the other did that much later.
shifted AS MATERIALIZED (
    SELECT l.n, l.by, t.bucket + l.by AS bucket, t.value
    FROM target_means AS t
    CROSS JOIN lags AS l
),
correlations AS (
    SELECT m.channel_id, s.n, s.by, corr(m.value, s.value) AS r, count(*) AS pairs
    FROM shifted AS s
    JOIN means AS m ON m.bucket = s.bucket
    GROUP BY m.channel_id, s.n, s.by
    HAVING count(*) >= 20
),
-- Of equal ones the smallest lag.
ranked AS (
    SELECT c.*, max(c.r) FILTER (WHERE c.n = 0) OVER (PARTITION BY c.channel_id) AS at_zero,
           row_number() OVER (PARTITION BY c.channel_id ORDER BY round(abs(c.r)::numeric, 6) DESC, abs(c.n)) AS place
    FROM correlations AS c
    WHERE c.r IS NOT NULL
)
SELECT w.name, r.r, extract(epoch FROM r.by)::float8, r.at_zero, r.pairs
FROM ranked AS r
JOIN wanted AS w ON w.channel_id = r.channel_id
WHERE r.place = 1 AND abs(r.r) >= least_correlation
ORDER BY abs(r.r) DESC, w.name
$$;

CREATE FUNCTION plant.hour_of(at timestamp with time zone) RETURNS timestamp with time zone
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN date_bin('01:00:00'::interval, at, '2000-01-01 00:00:00+00'::timestamp with time zone);

CREATE FUNCTION plant.is_packed(channel integer, at timestamp with time zone) RETURNS boolean
    LANGUAGE plpgsql STABLE COST 1 PARALLEL SAFE
    AS $$
DECLARE
    hour plant.samples_packed;
BEGIN
    IF at >= coalesce((SELECT c.until FROM plant.packed_channel AS c WHERE c.channel_id = channel), '-infinity') THEN
        RETURN false;
    END IF;
    EXECUTE format('SELECT p.* FROM plant.samples_packed AS p WHERE p.channel_id = %s AND p.hour = %L',
                   channel, date_trunc('hour', at, 'UTC')) INTO hour;
    RETURN EXISTS (SELECT FROM plant.unpack(hour, at, at + INTERVAL '1 microsecond') AS u WHERE u.time = at);
END
$$;

CREATE FUNCTION plant.unpack(p plant.samples_packed, "from" timestamp with time zone, "to" timestamp with time zone) RETURNS TABLE("time" timestamp with time zone, value double precision, status integer)
    LANGUAGE sql STABLE ROWS 3600 PARALLEL SAFE
    BEGIN ATOMIC
 SELECT u."time",
     u.value,
     u.status
    FROM (( SELECT
                 CASE
                     WHEN ((unpack.p).hour >= unpack."from") THEN 1
                     ELSE plant._sample_from(unpack.p, unpack."from")
                 END AS i,
                 CASE
                     WHEN (((unpack.p).hour + '01:00:00'::interval) <= unpack."to") THEN (unpack.p).n
                     ELSE (plant._sample_from(unpack.p, unpack."to") - 1)
                 END AS j
          OFFSET 0) w
      CROSS JOIN LATERAL plant._unpack_slice(unpack.p, w.i, w.j) u("time", value, status));
END;

CREATE TABLE plant.packed_until (
    one boolean DEFAULT true NOT NULL,
    until timestamp with time zone DEFAULT '-infinity'::timestamp with time zone NOT NULL,
    CONSTRAINT packed_until_one_check CHECK (one)
);

COMMENT ON TABLE plant.packed_until IS 'Rows of samples_raw before this may be late or replayed: they are compared with what is packed.';

CREATE TABLE plant.samples_raw (
    "time" timestamp with time zone NOT NULL,
    value double precision NOT NULL,
    channel_id integer NOT NULL,
    status integer NOT NULL
);

COMMENT ON TABLE plant.samples_raw IS 'What the writer fills. Read the view samples.';

COMMENT ON COLUMN plant.samples_raw.status IS 'OPC UA StatusCode, the same 32 bits as a signed integer: Bad is negative.';

CREATE FUNCTION plant.last_before(channel integer, since timestamp with time zone, before timestamp with time zone) RETURNS TABLE("time" timestamp with time zone, value double precision, status integer)
    LANGUAGE sql STABLE ROWS 1 PARALLEL SAFE
    BEGIN ATOMIC
 SELECT g."time",
     g.value,
     g.status
    FROM ((( SELECT) one
      LEFT JOIN LATERAL ( SELECT r_1."time",
             r_1.value,
             r_1.status
            FROM plant.samples_raw r_1
           WHERE ((r_1.channel_id = last_before.channel) AND (r_1."time" >= last_before.since) AND (r_1."time" < last_before.before) AND ((r_1."time" >= ( SELECT u.until
                    FROM plant.packed_until u)) OR (NOT plant.is_packed(r_1.channel_id, r_1."time"))))
           ORDER BY r_1."time" DESC
          LIMIT 1) r ON (true))
      CROSS JOIN LATERAL ( SELECT r."time",
             r.value,
             r.status
           WHERE (r."time" IS NOT NULL)
         UNION ALL
          SELECT u."time",
             u.value,
             u.status
            FROM (( SELECT p.*::plant.samples_packed AS p
                    FROM plant.samples_packed p
                   WHERE ((p.channel_id = last_before.channel) AND (p.hour >= plant.hour_of(last_before.since)) AND (p.hour < last_before.before) AND ((r."time" IS NULL) OR (r."time" < ( SELECT u_1.until
                            FROM plant.packed_until u_1))))
                   ORDER BY p.hour DESC
                  LIMIT 2) two
              CROSS JOIN LATERAL plant.unpack(two.p, last_before.since, last_before.before) u("time", value, status))
           WHERE ((u."time" >= last_before.since) AND (u."time" < last_before.before))) g)
   ORDER BY g."time" DESC
  LIMIT 1;
END;

CREATE FUNCTION plant.samples_between(channels integer[], "from" timestamp with time zone, "to" timestamp with time zone) RETURNS TABLE("time" timestamp with time zone, channel_id integer, value double precision, status integer)
    LANGUAGE sql STABLE PARALLEL SAFE
    BEGIN ATOMIC
 SELECT r."time",
     r.channel_id,
     r.value,
     r.status
    FROM plant.samples_raw r
   WHERE ((r.channel_id = ANY (samples_between.channels)) AND (r."time" >= samples_between."from") AND (r."time" < samples_between."to") AND ((r."time" >= ( SELECT u.until
            FROM plant.packed_until u)) OR (NOT (date_trunc('day'::text, r."time", 'UTC'::text) IN ( SELECT d.day
            FROM plant._packed_days() d(day)))) OR (NOT plant.is_packed(r.channel_id, r."time"))))
 UNION ALL
  SELECT u."time",
     p.channel_id,
     u.value,
     u.status
    FROM (plant.samples_packed p
      CROSS JOIN LATERAL plant.unpack(p.*, samples_between."from", samples_between."to") u("time", value, status))
   WHERE ((p.channel_id = ANY (samples_between.channels)) AND (p.hour >= plant.hour_of(samples_between."from")) AND (p.hour < samples_between."to"));
END;

COMMENT ON FUNCTION plant.samples_between(channels integer[], "from" timestamp with time zone, "to" timestamp with time zone) IS 'Samples of the channels with from <= time < to, each once; reads only their hours within the bounds.';

CREATE FUNCTION plant.course(channel integer, gaps timestamp with time zone[], since timestamp with time zone, "from" timestamp with time zone, "to" timestamp with time zone) RETURNS TABLE(at double precision, good double precision, sample integer)
    LANGUAGE sql STABLE PARALLEL SAFE
    BEGIN ATOMIC
 SELECT round((date_part('epoch'::text, (s."time" - course."from")) * ('1000000'::numeric)::double precision)) AS round,
         CASE
             WHEN ((s.status >= 0) AND (s.value <> 'NaN'::double precision)) THEN s.value
             ELSE NULL::double precision
         END AS "case",
     1
    FROM plant.samples_between(ARRAY[course.channel], course."from", course."to") s("time", channel_id, value, status)
 UNION ALL
  SELECT round((date_part('epoch'::text, (s."time" - course."from")) * ('1000000'::numeric)::double precision)) AS round,
         CASE
             WHEN ((s.status >= 0) AND (s.value <> 'NaN'::double precision)) THEN s.value
             ELSE NULL::double precision
         END AS "case",
     NULL::integer
    FROM plant.last_before(course.channel, course.since, course."from") s("time", value, status)
 UNION ALL
  SELECT (round((date_part('epoch'::text, (g.g - course."from")) * ('1000000'::numeric)::double precision)) + (0.5)::double precision),
     NULL::double precision,
     NULL::integer
    FROM unnest(course.gaps) g(g);
END;

CREATE FUNCTION plant.coverage_of(day timestamp with time zone) RETURNS TABLE(channel_id integer, name text, expected bigint, got bigint, got_good bigint, missing bigint, missing_seconds double precision, backfilled_seconds double precision, quarantined bigint)
    LANGUAGE sql STABLE
    SET search_path TO 'pg_catalog'
    AS $$
WITH
got AS (
    SELECT s.channel_id, count(*) AS got, count(*) FILTER (WHERE plant.quality(s.status) <> 'bad') AS got_good,
           min(s.time) AS first_time
    FROM plant.samples_between(day, day + INTERVAL '1 day') AS s
    GROUP BY s.channel_id
),
kept_out AS MATERIALIZED (
    SELECT * FROM plant.kept_out(day, day + INTERVAL '1 day')
),
-- Channels without a sample on the day that should have had one: those that are polled, and those that never had one.
silent AS (
    SELECT c.id AS channel_id, e.from_time, e.to_time
    FROM plant.channel AS c
    JOIN plant.source AS s ON s.id = c.source_id
    JOIN plant.channel_interval AS i ON i.channel_id = c.id
    CROSS JOIN LATERAL (
        SELECT CASE WHEN NOT plant.has_sample_before(c.id, day)
                    THEN greatest(c.configured_at, CASE WHEN c.configured_at IS NOT NULL THEN day END)
                    WHEN i.seconds IS NOT NULL THEN day END AS from_time,
               least(day + INTERVAL '1 day', now(), c.retired_at, s.retired_at) AS to_time
    ) AS e
    WHERE c.kind <> 'text' AND s.kind <> 'push' AND e.from_time < e.to_time
      AND NOT EXISTS (SELECT FROM got AS g WHERE g.channel_id = c.id)
),
-- Channels whose first sample of all came on the day, some time after they were configured: nothing was read until then.
unread AS (
    SELECT g.channel_id, greatest(c.configured_at, day) AS from_time, g.first_time AS to_time
    FROM got AS g
    JOIN plant.channel AS c ON c.id = g.channel_id
    JOIN plant.source AS s ON s.id = c.source_id
    JOIN plant.channel_interval AS i ON i.channel_id = c.id
    WHERE c.kind <> 'text' AND s.kind <> 'push' AND c.configured_at < g.first_time
      AND extract(epoch FROM g.first_time - greatest(c.configured_at, day)) >= coalesce(i.seconds, 0)
      -- In this order: what was long before is looked for last. What was before its configuration is a source timestamp.
      AND CASE WHEN EXISTS (SELECT FROM plant.samples_between(ARRAY[g.channel_id], day - INTERVAL '1 day', day)) THEN false
               ELSE NOT plant.has_sample_before(g.channel_id, day) END
),
-- Gaps cut at midnight, and where a channel is not configured; overlapping ones of a channel are joined, so that no second
-- counts twice.
pieces AS (
    SELECT g.channel_id, g.backfilled_at IS NOT NULL AS backfilled,
           tstzrange(greatest(g.from_time, day), least(coalesce(g.to_time, now()), day + INTERVAL '1 day')) AS piece
    FROM plant.gap_channel AS g
    WHERE g.from_time < day + INTERVAL '1 day'
      AND coalesce(g.to_time, now()) > day
      AND greatest(g.from_time, day) < least(coalesce(g.to_time, now()), day + INTERVAL '1 day')
    UNION ALL
    SELECT k.channel_id, false, tstzrange(k.from_time, k.to_time) FROM kept_out AS k WHERE k.from_time < k.to_time
    UNION ALL
    SELECT n.channel_id, false, tstzrange(n.from_time, n.to_time) FROM silent AS n
    UNION ALL
    SELECT u.channel_id, false, tstzrange(u.from_time, u.to_time) FROM unread AS u
),
joined AS (
    SELECT p.channel_id, coalesce(range_agg(e.piece) FILTER (WHERE NOT p.backfilled), '{}') AS missing,
           coalesce(range_agg(e.piece) FILTER (WHERE p.backfilled), '{}') AS backfilled
    FROM pieces AS p
    JOIN plant.channel AS c ON c.id = p.channel_id
    JOIN plant.source AS s ON s.id = c.source_id
    LEFT JOIN got AS g ON g.channel_id = p.channel_id
    CROSS JOIN LATERAL (
        -- What came with an earlier time than that of its configuration is of the channel as well.
        SELECT tstzmultirange(tstzrange(CASE WHEN c.configured_at IS NOT NULL THEN least(c.configured_at, g.first_time) END,
                                        least(c.retired_at, s.retired_at))) - c.retirements AS configured
    ) AS k
    CROSS JOIN LATERAL (SELECT tstzmultirange(p.piece) * k.configured AS piece) AS e
    WHERE NOT isempty(e.piece)
    GROUP BY p.channel_id
),
lengths AS (
    SELECT j.channel_id, j.missing @> day AS from_midnight, lower(j.missing) AS first_missing,
           (SELECT coalesce(sum(extract(epoch FROM upper(r) - lower(r))), 0)::float8 FROM unnest(j.missing) AS r) AS missing,
           (SELECT coalesce(sum(extract(epoch FROM upper(r) - lower(r))), 0)::float8
            FROM unnest(j.backfilled - j.missing) AS r) AS backfilled
    FROM joined AS j
),
refused AS (
    SELECT k.channel_id, sum(k.n)::bigint AS n FROM kept_out AS k GROUP BY k.channel_id
),
counted AS (
    SELECT coalesce(g.channel_id, l.channel_id) AS channel_id, coalesce(g.got, 0) AS got, coalesce(g.got_good, 0) AS got_good,
           coalesce(l.missing, 0) AS missing_seconds, coalesce(l.backfilled, 0) AS backfilled_seconds,
           -- A channel that had nothing the day before, not even a gap, began on this day.
           CASE
               WHEN coalesce(l.from_midnight, false) OR c.retirements @> day
                 OR EXISTS (SELECT FROM plant.samples_between(ARRAY[coalesce(g.channel_id, l.channel_id)],
                                                              day - INTERVAL '1 day', day))
               THEN day ELSE least(g.first_time, l.first_missing)
           END AS began
    FROM got AS g
    FULL JOIN lengths AS l ON l.channel_id = g.channel_id
    JOIN plant.channel AS c ON c.id = coalesce(g.channel_id, l.channel_id)
),
-- By the interval. Polls are never exactly as far apart: one more than that may have been got.
due AS (
    SELECT t.channel_id, i.seconds IS NOT NULL AS polled,
           round((extract(epoch FROM e.ends - e.began)
                  - (SELECT coalesce(sum(extract(epoch FROM least(upper(r), e.ends) - greatest(lower(r), e.began))), 0)
                     FROM unnest(c.retirements) AS r
                     WHERE lower(r) < e.ends AND upper(r) > e.began))::numeric
                 / i.seconds::numeric)::bigint AS due
    FROM counted AS t
    JOIN plant.channel AS c ON c.id = t.channel_id
    JOIN plant.source AS s ON s.id = c.source_id
    LEFT JOIN plant.channel_interval AS i ON i.channel_id = t.channel_id
    CROSS JOIN LATERAL (
        SELECT coalesce(t.began, day) AS began, least(day + INTERVAL '1 day', now(), c.retired_at, s.retired_at) AS ends
    ) AS e
)
SELECT c.id, c.name,
       CASE WHEN d.polled OR r.n > 0 THEN t.got + m.missing END,
       t.got, t.got_good,
       CASE WHEN d.polled OR r.n > 0 THEN m.missing END,
       t.missing_seconds, t.backfilled_seconds, coalesce(r.n, 0)
FROM counted AS t
JOIN plant.channel AS c ON c.id = t.channel_id
JOIN due AS d ON d.channel_id = t.channel_id
LEFT JOIN refused AS r ON r.channel_id = t.channel_id
CROSS JOIN LATERAL (
    SELECT CASE WHEN d.polled THEN greatest(0, d.due - t.got) ELSE coalesce(r.n, 0) END AS missing
) AS m
$$;

COMMENT ON FUNCTION plant.coverage_of(day timestamp with time zone) IS 'Coverage of each channel on the day (UTC) that begins then: samples expected, got, and missing, which is the difference (expected and missing are NULL where the channel reports changes only, and none is known to be missing); seconds missing and backfilled; quarantined: how many of those missing came and were kept out.';

CREATE FUNCTION plant.day_of(at timestamp with time zone) RETURNS timestamp with time zone
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN date_bin('24:00:00'::interval, at, '2000-01-01 00:00:00+00'::timestamp with time zone);

CREATE FUNCTION plant.decimals(value double precision) RETURNS integer
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN CASE WHEN (NOT (abs(value) < ('9000000000000000'::numeric)::double precision)) THEN NULL::integer WHEN (value = (0)::double precision) THEN CASE WHEN (float8send(value) = '\x0000000000000000'::bytea) THEN 0 ELSE NULL::integer END WHEN (round(value) = value) THEN 0 WHEN (NOT (abs(value) < ('90000000000000'::numeric)::double precision)) THEN NULL::integer WHEN ((round((value * (10)::double precision)) / (10)::double precision) = value) THEN 1 WHEN ((round((value * (100)::double precision)) / (100)::double precision) = value) THEN 2 WHEN (NOT (abs(value) < ('900000000000'::numeric)::double precision)) THEN NULL::integer WHEN ((round((value * (1000)::double precision)) / (1000)::double precision) = value) THEN 3 WHEN ((round((value * (10000)::double precision)) / (10000)::double precision) = value) THEN 4 WHEN (NOT (abs(value) < ('9000000000'::numeric)::double precision)) THEN NULL::integer WHEN ((round((value * ('100000'::numeric)::double precision)) / ('100000'::numeric)::double precision) = value) THEN 5 WHEN ((round((value * ('1000000'::numeric)::double precision)) / ('1000000'::numeric)::double precision) = value) THEN 6 WHEN (NOT (abs(value) < ('9000000'::numeric)::double precision)) THEN NULL::integer WHEN ((round((value * ('10000000'::numeric)::double precision)) / ('10000000'::numeric)::double precision) = value) THEN 7 WHEN ((round((value * ('100000000'::numeric)::double precision)) / ('100000000'::numeric)::double precision) = value) THEN 8 WHEN ((round((value * ('1000000000'::numeric)::double precision)) / ('1000000000'::numeric)::double precision) = value) THEN 9 ELSE NULL::integer END;

CREATE FUNCTION plant.is_float4(value double precision) RETURNS boolean
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN CASE WHEN ((abs(value) >= (0.000000000000000000000000000001)::double precision) AND (abs(value) <= ('1000000000000000000000000000000'::numeric)::double precision)) THEN (((value)::real)::double precision = value) ELSE (float8send(value) = '\x0000000000000000'::bytea) END;

CREATE FUNCTION plant.decimals_of_float4(value double precision) RETURNS integer
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN CASE WHEN (NOT plant.is_float4(value)) THEN NULL::integer WHEN (round(value) = value) THEN CASE WHEN (abs(value) < ('9000000000000000'::numeric)::double precision) THEN 0 ELSE NULL::integer END WHEN (NOT (abs(value) < ('9000000000'::numeric)::double precision)) THEN NULL::integer WHEN (((round((value * (10)::double precision)) / (10)::double precision))::real = value) THEN 1 WHEN (((round((value * (100)::double precision)) / (100)::double precision))::real = value) THEN 2 WHEN (((round((value * (1000)::double precision)) / (1000)::double precision))::real = value) THEN 3 WHEN (((round((value * ('10000'::numeric)::double precision)) / ('10000'::numeric)::double precision))::real = value) THEN 4 WHEN (((round((value * ('100000'::numeric)::double precision)) / ('100000'::numeric)::double precision))::real = value) THEN 5 WHEN (((round((value * ('1000000'::numeric)::double precision)) / ('1000000'::numeric)::double precision))::real = value) THEN 6 ELSE NULL::integer END;

CREATE FUNCTION plant.delete_samples(channels integer[], "from" timestamp with time zone, "to" timestamp with time zone, why text) RETURNS bigint
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog'
    SET plan_cache_mode TO 'force_custom_plan'
    SET jit TO 'off'
    AS $$
DECLARE
    from_rows   record;
    from_packed record;
    detail      jsonb;
    at          timestamptz;
BEGIN
    IF coalesce(btrim(why), '') = '' THEN
        RAISE EXCEPTION 'delete_samples: say why' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    -- Nobody packs or moves rows meanwhile.
    PERFORM pg_advisory_xact_lock(7361023400153);
    WITH gone AS (
        DELETE FROM plant.samples_raw AS r
        WHERE r.channel_id = ANY (channels) AND r.time >= "from" AND r.time < "to"
        RETURNING r.time, r.channel_id
    )
    SELECT count(*) AS n, min(g.time) AS first, max(g.time) AS last
    INTO from_rows
    FROM gone AS g
    WHERE g.time >= (SELECT u.until FROM plant.packed_until AS u) OR NOT plant.is_packed(g.channel_id, g.time);
    WITH cut AS (
        DELETE FROM plant.samples_packed AS p
        WHERE p.channel_id = ANY (channels) AND p.hour > "from" - INTERVAL '1 hour' AND p.hour < "to"
        RETURNING p
    ),
    sample AS MATERIALIZED (
        SELECT (c.p).channel_id, (c.p).hour, u.time, u.value, u.status, u.time >= "from" AND u.time < "to" AS gone
        FROM cut AS c
        CROSS JOIN LATERAL plant.unpack(c.p) AS u
    ),
    kept AS (
        INSERT INTO plant.samples_packed
        SELECT s.*
        FROM (
            SELECT k.channel_id, k.hour, array_agg(k.time ORDER BY k.time) AS times,
                   array_agg(k.value ORDER BY k.time) AS "values", array_agg(k.status ORDER BY k.time) AS statuses
            FROM sample AS k
            WHERE NOT k.gone
            GROUP BY k.channel_id, k.hour
        ) AS g
        CROSS JOIN LATERAL plant.pack(g.channel_id, g.hour, g.times, g."values", g.statuses) AS s
    )
    SELECT count(*) AS n, min(s.time) AS first, max(s.time) AS last INTO from_packed FROM sample AS s WHERE s.gone;
    IF from_rows.n + from_packed.n > 0 THEN
        INSERT INTO plant.rollup_dirty (from_time, to_time, channels)
        VALUES (plant.minute_of(least(from_rows.first, from_packed.first)),
                plant.minute_of(greatest(from_rows.last, from_packed.last)) + INTERVAL '1 minute', channels);
    END IF;
    at := clock_timestamp();
    detail := jsonb_build_object('by', session_user, 'samples', from_rows.n + from_packed.n, 'channels', channels,
                                 'from', "from", 'to', "to");
    INSERT INTO plant.event (time, id, type, channel_id, text, detail)
    VALUES (at, hashtextextended(concat_ws(' ', at::text, why, detail::text), 8) & 9223372036854775807, 'deleted',
            CASE WHEN cardinality(channels) = 1 THEN channels[1] END, why, detail);
    RETURN from_rows.n + from_packed.n;
END
$$;

COMMENT ON FUNCTION plant.delete_samples(channels integer[], "from" timestamp with time zone, "to" timestamp with time zone, why text) IS 'Delete samples of the channels with from <= time < to, and say so in an event: who, why, how many. A replay of what was deleted would land again.';

CREATE FUNCTION plant.drawn(channel integer, since timestamp with time zone, until timestamp with time zone, points integer) RETURNS TABLE("time" timestamp with time zone, low double precision, mean double precision, high double precision, n bigint, n_good bigint)
    LANGUAGE sql STABLE
    AS $$
WITH
width AS (
    SELECT greatest(plant.series_width(until - since, greatest(points, 1)), INTERVAL '1 s') AS step
),
-- Steps stand where the buckets of plant.series do.
bounds AS MATERIALIZED (
    SELECT w.step, date_bin(w.step, since, '2000-01-01 00:00:00+00') AS first, least(until, now(), c.retired_at, s.retired_at) AS last
    FROM width AS w
    JOIN plant.channel AS c ON c.id = channel
    JOIN plant.source AS s ON s.id = c.source_id
),
got AS (
    SELECT date_bin(b.step, s.time, '2000-01-01 00:00:00+00') AS bucket, min(s.min) AS low, max(s.max) AS high,
           -- a mean of means, each with its weight
           sum(s.avg * s.n_good) / nullif(sum(s.n_good) FILTER (WHERE s.avg IS NOT NULL), 0) AS mean,
           public.last(s.last, s.time) AS last, sum(s.n) AS n, sum(s.n_good) AS n_good
    FROM bounds AS b
    CROSS JOIN LATERAL plant.series(channel, b.first, b.last, greatest(1, ceil(
        extract(epoch FROM b.last - b.first) / extract(epoch FROM b.step)))::int) AS s
    WHERE b.first < b.last AND s.n > 0
    GROUP BY 1
),
missing AS MATERIALIZED (
    SELECT coalesce(range_agg(tstzrange(g.from_time, g.to_time)), '{}') AS ranges
    FROM bounds AS b
    CROSS JOIN LATERAL plant.breaks(channel, b.first - INTERVAL '24 hours', b.last) AS g
    WHERE NOT g.backfilled
),
-- What held before the first step, unless something was missing since.
before AS (
    SELECT b.first - b.step AS bucket, CASE WHEN l.status >= 0 AND l.value <> 'NaN' THEN l.value END AS last
    FROM bounds AS b
    CROSS JOIN LATERAL plant.last_before(channel, b.first - INTERVAL '24 hours', b.first) AS l
    CROSS JOIN missing AS m
    WHERE NOT m.ranges && tstzrange(l.time, b.first, '()')
),
steps AS (
    SELECT t.bucket, g.low, g.mean, g.high, g.n, g.n_good, g.last,
           g.n IS NULL AND m.ranges && tstzrange(t.bucket, t.bucket + b.step) AS lost
    FROM bounds AS b
    CROSS JOIN missing AS m
    CROSS JOIN LATERAL generate_series(b.first, b.last - INTERVAL '1 microsecond', b.step) AS t (bucket)
    LEFT JOIN got AS g ON g.bucket = t.bucket
    UNION ALL
    SELECT b.bucket, NULL, NULL, NULL, 1, 1, b.last, false FROM before AS b
),
-- Each step that says something begins a block, in which what it says holds.
blocks AS (
    SELECT s.*, count(*) FILTER (WHERE s.n IS NOT NULL OR s.lost) OVER (ORDER BY s.bucket) AS block FROM steps AS s
),
held AS (
    SELECT k.*, first_value(k.last) OVER (PARTITION BY k.block ORDER BY k.bucket) AS holds FROM blocks AS k
)
SELECT h.bucket, coalesce(h.low, h.holds), coalesce(h.mean, h.holds), coalesce(h.high, h.holds), coalesce(h.n, 0),
       coalesce(h.n_good, 0)
FROM held AS h
CROSS JOIN bounds AS b
WHERE h.bucket >= b.first
ORDER BY h.bucket
$$;

CREATE FUNCTION plant.drop_before(t timestamp with time zone, what text, class text, dry_run boolean) RETURNS TABLE(relation text, day timestamp with time zone, channels integer, bytes bigint, action text)
    LANGUAGE sql
    SET search_path TO 'pg_catalog'
    AS $$
SELECT u.relation::text, s.day, s.channels, s.bytes, s.action
FROM plant.retention_units(what) AS u
CROSS JOIN LATERAL plant.drop_slice(what, u.relation, u.from_time, least(u.to_time, t),
                                    CASE WHEN class IS NOT NULL THEN ARRAY[class] END, 'asked for', dry_run) AS s
WHERE u.from_time < least(t, plant.closed_until())
$$;

COMMENT ON FUNCTION plant.drop_before(t timestamp with time zone, what text, class text, dry_run boolean) IS 'Drop what is before t of a kind (raw, 1m, 1h, event) and a class (NULL: all); dry_run: say what would go. Never the open day, nor an unsealed one where days are sealed.';

CREATE FUNCTION plant.drop_packed_chunk(name text, from_time timestamp with time zone, to_time timestamp with time zone) RETURNS boolean
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog'
    SET lock_timeout TO '20ms'
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

CREATE FUNCTION plant.drop_rollup_chunk(name text) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog'
    SET lock_timeout TO '20ms'
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

CREATE FUNCTION plant.drop_slice(what text, relation regclass, from_time timestamp with time zone, to_time timestamp with time zone, classes text[], why text, dry_run boolean) RETURNS TABLE(day timestamp with time zone, retention text[], channels integer, rows bigint, bytes bigint, action text)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog'
    SET "TimeZone" TO 'UTC'
    SET plan_cache_mode TO 'force_custom_plan'
    SET jit TO 'off'
    AS $_$
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
$_$;

CREATE FUNCTION plant.end_long_readers(statement interval DEFAULT '00:15:00'::interval, transaction interval DEFAULT '01:00:00'::interval, idle interval DEFAULT '00:05:00'::interval, large integer[] DEFAULT '{}'::integer[]) RETURNS integer
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'pg_catalog'
    AS $$
SELECT count(pg_terminate_backend(r.pid))::int
FROM plant.reader_sessions() AS r
WHERE r.active_since < clock_timestamp() - statement OR r.xact_start < clock_timestamp() - transaction
   OR r.idle_since < clock_timestamp() - idle OR r.pid = ANY (large)
$$;

COMMENT ON FUNCTION plant.end_long_readers(statement interval, transaction interval, idle interval, large integer[]) IS 'End the sessions of readers that lifted their time limit, and those of large; returns how many.';

CREATE FUNCTION plant.excursions(since timestamp with time zone, until timestamp with time zone, channels text[] DEFAULT NULL::text[], sigmas double precision DEFAULT 8, short interval DEFAULT '00:00:10'::interval, long interval DEFAULT '00:05:00'::interval, reference interval DEFAULT '01:00:00'::interval) RETURNS TABLE(channel text, class text, episodes bigint, first_at timestamp with time zone, last_at timestamp with time zone, usual_period interval, longest interval, peak double precision, peak_at timestamp with time zone, sigmas_at_peak double precision)
    LANGUAGE sql STABLE
    AS $$
WITH
wanted AS (
    SELECT c.channel_id, c.name, c.span FROM plant.channels_like(channels) AS c WHERE c.kind = 'analog'
),
readings AS (
    SELECT w.channel_id, s.time, s.value, date_bin(short, s.time, since) AS short_bin,
           date_bin(long, s.time, since) AS long_bin
    FROM wanted AS w
    CROSS JOIN LATERAL plant.good_samples(w.channel_id, since - reference, until) AS s
),
short_means AS (
    SELECT r.channel_id, r.long_bin, r.short_bin, avg(r.value) AS mean,
           -- A spike must not hide itself by pulling its own mean.
           percentile_cont(0.5) WITHIN GROUP (ORDER BY r.value) AS middle
    FROM readings AS r
    GROUP BY r.channel_id, r.long_bin, r.short_bin
),
long_means AS (
    SELECT m.channel_id, m.long_bin, avg(m.mean) AS mean FROM short_means AS m GROUP BY m.channel_id, m.long_bin
),
bases AS (
    SELECT l.channel_id, avg(l.mean) AS mean FROM long_means AS l WHERE l.long_bin < since GROUP BY l.channel_id
),
parts AS (
    SELECT r.channel_id, 'fast' AS class, r.time, r.value - m.middle AS value, short AS apart
    FROM readings AS r
    JOIN short_means AS m ON m.channel_id = r.channel_id AND m.short_bin = r.short_bin
    UNION ALL
    SELECT m.channel_id, 'medium', m.short_bin, m.mean - l.mean, long / 4
    FROM short_means AS m
    JOIN long_means AS l ON l.channel_id = m.channel_id AND l.long_bin = m.long_bin
    UNION ALL
    SELECT l.channel_id, 'slow', l.long_bin, l.mean - b.mean, 2 * long
    FROM long_means AS l
    JOIN bases AS b ON b.channel_id = l.channel_id
),
usual AS (
    SELECT p.channel_id, p.class, sqrt(avg(p.value ^ 2)) AS spread, max(abs(p.value)) AS largest
    FROM parts AS p
    WHERE p.time < since
    GROUP BY p.channel_id, p.class
    HAVING count(*) >= 6
),
whole AS (
    SELECT r.channel_id, stddev_pop(r.value) FILTER (WHERE r.time < since) AS spread,
           max(abs(r.value)) * 2 ^ -52 AS rounding
    FROM readings AS r
    GROUP BY r.channel_id
),
-- A ten-thousandth of the range is no excursion, however still a channel was before, nor is what float8 rounds. Of few slow means the spread is a
-- guess: half of the whole spread is the least.
limits AS (
    SELECT u.channel_id, u.class, u.largest,
           greatest(u.spread, CASE u.class WHEN 'fast' THEN 0 WHEN 'medium' THEN h.spread / 4 ELSE h.spread / 2 END,
                    coalesce(w.span, 0) * 1e-4, h.rounding, 1e-12) AS spread
    FROM usual AS u
    JOIN whole AS h ON h.channel_id = u.channel_id
    JOIN wanted AS w ON w.channel_id = u.channel_id
),
outside AS (
    SELECT p.channel_id, p.class, p.time, p.value, p.apart, abs(p.value) / l.spread AS far,
           p.time - lag(p.time) OVER (PARTITION BY p.channel_id, p.class ORDER BY p.time) > p.apart AS begins
    FROM parts AS p
    JOIN limits AS l ON l.channel_id = p.channel_id AND l.class = p.class
    WHERE p.time >= since
      AND abs(p.value) > greatest(sigmas * CASE p.class WHEN 'slow' THEN 0.5 ELSE 1 END * l.spread, 1.5 * l.largest)
),
numbered AS (
    SELECT o.*, count(*) FILTER (WHERE o.begins) OVER (PARTITION BY o.channel_id, o.class ORDER BY o.time) AS episode
    FROM outside AS o
),
episodes AS (
    SELECT n.channel_id, n.class, n.episode, min(n.time) AS begins, max(n.time) AS ends, max(n.far) AS far,
           public.last(n.value, n.far) AS peak, public.last(n.time, n.far) AS peak_at
    FROM numbered AS n
    GROUP BY n.channel_id, n.class, n.episode
),
spaced AS (
    SELECT e.*, e.begins - lag(e.begins) OVER (PARTITION BY e.channel_id, e.class ORDER BY e.begins) AS since_last
    FROM episodes AS e
)
SELECT w.name, s.class, count(*), min(s.begins), max(s.begins),
       percentile_cont(0.5) WITHIN GROUP (ORDER BY s.since_last), max(s.ends - s.begins),
       public.last(s.peak, s.far), public.last(s.peak_at, s.far), max(s.far)
FROM spaced AS s
JOIN wanted AS w ON w.channel_id = s.channel_id
GROUP BY w.name, s.class
ORDER BY max(s.far) DESC, w.name
$$;

CREATE FUNCTION plant.first_mover(since timestamp with time zone, until timestamp with time zone, channels text[] DEFAULT NULL::text[], step interval DEFAULT NULL::interval, sigmas double precision DEFAULT 6, reference interval DEFAULT '01:00:00'::interval) RETURNS TABLE(place bigint, channel text, moved_at timestamp with time zone, direction text, usual double precision, moved_to double precision, unit text, times_limit double precision)
    LANGUAGE sql STABLE
    AS $$
WITH
wanted AS (
    SELECT c.channel_id, c.name, c.kind, c.unit, c.span FROM plant.channels_like(channels) AS c WHERE c.kind <> 'text'
),
means AS (
    SELECT r.channel_id, r.bucket, r.value,
           r.value - lag(r.value) OVER (PARTITION BY r.channel_id ORDER BY r.bucket) AS change
    FROM plant.resampled(channels, since - reference, until,
                         coalesce(step, greatest((until - since) / 300, INTERVAL '1 s')), reference) AS r
),
usual AS (
    SELECT m.channel_id, avg(m.value) AS mean, stddev_pop(m.value) AS spread, stddev_pop(m.change) AS spread_of_change,
           max(m.value) AS high, min(m.value) AS low, max(abs(m.change)) AS largest_change
    FROM means AS m
    WHERE m.bucket < since
    GROUP BY m.channel_id
    HAVING count(*) >= 10
),
-- How far the value, and its step, may go. Less than a thousandth of the range is no move; a counter only has steps.
limits AS (
    SELECT u.channel_id, u.mean,
           CASE WHEN w.kind <> 'counter'
                THEN greatest(sigmas * u.spread, 1.5 * (u.high - u.mean), 1.5 * (u.mean - u.low), f.floor)
           END AS value_limit,
           greatest(sigmas * u.spread_of_change, 1.5 * u.largest_change, f.floor) AS change_limit
    FROM usual AS u
    JOIN wanted AS w ON w.channel_id = u.channel_id
    CROSS JOIN LATERAL (SELECT greatest(coalesce(w.span, abs(u.mean)) * 1e-3, 1e-9) AS floor) AS f
),
scored AS (
    SELECT m.channel_id, m.bucket, m.value, l.mean, m.value - l.mean AS off,
           greatest(abs(m.value - l.mean) / l.value_limit, abs(m.change) / l.change_limit) AS far
    FROM means AS m
    JOIN limits AS l ON l.channel_id = m.channel_id
    WHERE m.bucket >= since
),
confirmed AS (
    SELECT s.*, count(*) FILTER (WHERE s.far > 1) OVER next_three AS times, max(s.far) OVER next_three AS strongest
    FROM scored AS s
    WINDOW next_three AS (PARTITION BY s.channel_id ORDER BY s.bucket ROWS BETWEEN CURRENT ROW AND 2 FOLLOWING)
),
onsets AS (
    SELECT DISTINCT ON (c.channel_id) c.channel_id, c.bucket, c.mean, c.value, c.off, c.strongest
    FROM confirmed AS c
    WHERE c.far > 1 AND c.times >= 2
    ORDER BY c.channel_id, c.bucket
)
SELECT row_number() OVER (ORDER BY o.bucket, o.strongest DESC, w.name), w.name, o.bucket,
       CASE WHEN o.off > 0 THEN 'up' ELSE 'down' END, o.mean, o.value, plant.unit_at(o.channel_id, o.bucket), o.strongest
FROM onsets AS o
JOIN wanted AS w ON w.channel_id = o.channel_id
ORDER BY 1
$$;

CREATE FUNCTION plant.first_open() RETURNS timestamp with time zone
    LANGUAGE sql
    SET search_path TO 'pg_catalog'
    AS $$
SELECT min(d.from_time) FROM plant.rollup_dirty AS d
WHERE d.open_since IS NOT NULL AND d.open_since > clock_timestamp() - plant.open_for()
$$;

CREATE FUNCTION plant.first_sample(channel integer, since timestamp with time zone, until timestamp with time zone) RETURNS timestamp with time zone
    LANGUAGE sql STABLE
    SET search_path TO 'pg_catalog'
    AS $$
SELECT min(s.time) FROM plant.samples_between(ARRAY[channel], since, until) AS s
$$;

COMMENT ON FUNCTION plant.first_sample(channel integer, since timestamp with time zone, until timestamp with time zone) IS 'The time of a channel''s first sample from since on and before until; NULL: there is none.';

CREATE FUNCTION plant.first_sample_day() RETURNS timestamp with time zone
    LANGUAGE sql STABLE
    SET search_path TO 'pg_catalog'
    AS $$
SELECT min(k.range_start)
FROM timescaledb_information.chunks AS k
WHERE k.hypertable_schema = 'plant' AND k.hypertable_name IN ('samples_raw', 'samples_packed')
$$;

COMMENT ON FUNCTION plant.first_sample_day() IS 'When the first chunk of samples begins: known without reading samples.';

CREATE TABLE plant.gap (
    id bigint NOT NULL,
    source_id integer NOT NULL,
    channel_id integer,
    from_time timestamp with time zone NOT NULL,
    to_time timestamp with time zone,
    reason text NOT NULL,
    backfilled_at timestamp with time zone,
    detail text DEFAULT ''::text NOT NULL,
    revision bigint DEFAULT 0 NOT NULL,
    opened_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT gap_check CHECK ((to_time >= from_time))
);

COMMENT ON TABLE plant.gap IS 'An interval that is known to be missing. No channel: the whole source. No to_time: still open.';

COMMENT ON COLUMN plant.gap.to_time IS 'Time of the first sample behind the gap; NULL: still open; equal to from_time: nothing was missing after all.';

COMMENT ON COLUMN plant.gap.reason IS 'stopped, killed, disconnected, subscription_lost, not_available, overflow, undecodable, refused, poll_failed, poll_missed, clock_set, spool_full, spool_corrupt, stale.';

COMMENT ON COLUMN plant.gap.revision IS 'When its collector said this (µs since 1970): what is said later replaces what was said before.';

CREATE VIEW plant.gap_channel AS
 SELECT g.id AS gap_id,
    c.id AS channel_id,
    g.source_id,
    g.from_time,
    g.to_time,
    g.reason,
    g.detail,
    g.backfilled_at
   FROM (plant.gap g
     JOIN plant.channel c ON (((c.source_id = g.source_id) AND ((g.channel_id IS NULL) OR (g.channel_id = c.id)))))
  WHERE (g.to_time IS DISTINCT FROM g.from_time);

COMMENT ON VIEW plant.gap_channel IS 'Gaps by channel; a gap of a whole source is one row for each of its channels.';

CREATE FUNCTION plant.gap_begins(channels integer[], "from" timestamp with time zone, "to" timestamp with time zone) RETURNS TABLE(channel_id integer, begins timestamp with time zone[])
    LANGUAGE sql STABLE
    BEGIN ATOMIC
 SELECT g.channel_id,
     array_agg(g.from_time) AS array_agg
    FROM plant.gap_channel g
   WHERE ((g.from_time >= gap_begins."from") AND (g.from_time < gap_begins."to") AND (g.backfilled_at IS NULL) AND (g.channel_id = ANY (gap_begins.channels)))
   GROUP BY g.channel_id;
END;

CREATE FUNCTION plant.minute_of(at timestamp with time zone) RETURNS timestamp with time zone
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN date_bin('00:01:00'::interval, at, '2000-01-01 00:00:00+00'::timestamp with time zone);

CREATE FUNCTION plant.unpack_numbers(p plant.packed_numbers, i integer, j integer) RETURNS double precision[]
    LANGUAGE sql STABLE PARALLEL SAFE
    BEGIN ATOMIC
 SELECT ARRAY( SELECT COALESCE(u.float8s, (u.float4s)::double precision,
                 CASE
                     WHEN h.single THEN (((((h.base + (COALESCE((u.v0)::integer, 0))::double precision) + (COALESCE((256 * (u.v1)::integer), 0))::double precision) / h.divisor))::real)::double precision
                     WHEN h.narrow THEN ((h.base + (COALESCE((u.v0)::integer, 0))::double precision) / h.divisor)
                     ELSE (((((h.base + ((u.v0)::integer)::double precision) + ((256 * (u.v1)::integer))::double precision) + (COALESCE((65536 * (u.v2)::integer), 0))::double precision) + COALESCE(((16777216)::double precision * ((u.v3)::integer)::double precision), (0)::double precision)) / h.divisor)
                 END) AS "coalesce"
            FROM (( SELECT (unpack_numbers.p).base AS base,
                     (unpack_numbers.p).divisor AS divisor,
                     (unpack_numbers.p).single AS single,
                     ((unpack_numbers.p).v1 IS NULL) AS narrow
                  OFFSET 0) h
              CROSS JOIN LATERAL ( SELECT generate_series(unpack_numbers.i, unpack_numbers.j) AS generate_series,
                     unnest((unpack_numbers.p).v0[unpack_numbers.i:unpack_numbers.j]) AS v0,
                     unnest((unpack_numbers.p).v1[unpack_numbers.i:unpack_numbers.j]) AS v1,
                     unnest((unpack_numbers.p).v2[unpack_numbers.i:unpack_numbers.j]) AS v2,
                     unnest((unpack_numbers.p).v3[unpack_numbers.i:unpack_numbers.j]) AS v3,
                     unnest((unpack_numbers.p).float4s[unpack_numbers.i:unpack_numbers.j]) AS float4s,
                     unnest((unpack_numbers.p).float8s[unpack_numbers.i:unpack_numbers.j]) AS float8s) u)) AS "array";
END;

CREATE TABLE plant.rollup_1m (
    channel_id integer NOT NULL,
    n integer NOT NULL,
    bucket timestamp with time zone NOT NULL,
    min double precision,
    max double precision,
    sum double precision NOT NULL,
    area double precision NOT NULL,
    first double precision,
    last double precision,
    known bigint NOT NULL,
    first_time timestamp with time zone,
    last_time timestamp with time zone,
    n_good integer NOT NULL,
    holds boolean NOT NULL
);

COMMENT ON TABLE plant.rollup_1m IS 'Minutes as they are made. Read samples_1m, or minutes_between where channels and times are known.';

COMMENT ON COLUMN plant.rollup_1m.area IS 'Value times seconds over the known time.';

COMMENT ON COLUMN plant.rollup_1m.known IS 'µs of which the value is known.';

CREATE TABLE plant.rollup_1m_packed (
    day timestamp with time zone NOT NULL,
    channel_id integer NOT NULL,
    rows integer NOT NULL,
    n integer,
    n_good integer,
    known integer,
    first_at integer,
    last_at integer,
    holds integer,
    minute_ integer[],
    n_ integer[],
    n_good_ integer[],
    known_ integer[],
    first_at_ integer[],
    last_at_ integer[],
    holds_ integer[],
    min plant.packed_numbers,
    max plant.packed_numbers,
    sum plant.packed_numbers,
    area plant.packed_numbers,
    first plant.packed_numbers,
    last plant.packed_numbers
);
ALTER TABLE ONLY plant.rollup_1m_packed ALTER COLUMN minute_ SET COMPRESSION lz4;
ALTER TABLE ONLY plant.rollup_1m_packed ALTER COLUMN n_ SET COMPRESSION lz4;
ALTER TABLE ONLY plant.rollup_1m_packed ALTER COLUMN n_good_ SET COMPRESSION lz4;
ALTER TABLE ONLY plant.rollup_1m_packed ALTER COLUMN known_ SET COMPRESSION lz4;
ALTER TABLE ONLY plant.rollup_1m_packed ALTER COLUMN first_at_ SET COMPRESSION lz4;
ALTER TABLE ONLY plant.rollup_1m_packed ALTER COLUMN last_at_ SET COMPRESSION lz4;
ALTER TABLE ONLY plant.rollup_1m_packed ALTER COLUMN holds_ SET COMPRESSION lz4;
ALTER TABLE ONLY plant.rollup_1m_packed ALTER COLUMN min SET COMPRESSION lz4;
ALTER TABLE ONLY plant.rollup_1m_packed ALTER COLUMN max SET COMPRESSION lz4;
ALTER TABLE ONLY plant.rollup_1m_packed ALTER COLUMN sum SET COMPRESSION lz4;
ALTER TABLE ONLY plant.rollup_1m_packed ALTER COLUMN area SET COMPRESSION lz4;
ALTER TABLE ONLY plant.rollup_1m_packed ALTER COLUMN first SET COMPRESSION lz4;
ALTER TABLE ONLY plant.rollup_1m_packed ALTER COLUMN last SET COMPRESSION lz4;

COMMENT ON TABLE plant.rollup_1m_packed IS 'Minutes of closed days, a channel and day (UTC) a row. Read samples_1m or minutes_between.';

COMMENT ON COLUMN plant.rollup_1m_packed.minute_ IS 'Which minutes of the day (from 0) there are; NULL: all 1440. So with the others: where an array is NULL, all rows have what the column without underscore says. first_at and last_at: µs since the minute.';

CREATE FUNCTION plant.unpack_minutes(p plant.rollup_1m_packed, "from" timestamp with time zone, "to" timestamp with time zone) RETURNS SETOF plant.rollup_1m
    LANGUAGE sql STABLE ROWS 1440 PARALLEL SAFE
    BEGIN ATOMIC
 SELECT (unpack_minutes.p).channel_id AS channel_id,
     COALESCE(u.n_, (unpack_minutes.p).n) AS "coalesce",
     b.bucket,
         CASE
             WHEN (b.n_good > 0) THEN u.min
             ELSE NULL::double precision
         END AS "case",
         CASE
             WHEN (b.n_good > 0) THEN u.max
             ELSE NULL::double precision
         END AS "case",
     u.sum,
     u.area,
         CASE
             WHEN (b.n_good > 0) THEN u.first
             ELSE NULL::double precision
         END AS "case",
         CASE
             WHEN (b.n_good > 0) THEN u.last
             ELSE NULL::double precision
         END AS "case",
     (COALESCE(u.known_, (unpack_minutes.p).known))::bigint AS "coalesce",
     (b.bucket + ('00:00:00.000001'::interval * (COALESCE(u.first_at_, (unpack_minutes.p).first_at))::double precision)),
     (b.bucket + ('00:00:00.000001'::interval * (COALESCE(u.last_at_, (unpack_minutes.p).last_at))::double precision)),
     b.n_good,
     (COALESCE(u.holds_, (unpack_minutes.p).holds) = 1)
    FROM ((( SELECT (
                 CASE
                     WHEN (((unpack_minutes.p).minute_ IS NULL) AND (unpack_minutes."from" > (unpack_minutes.p).day)) THEN ((1)::double precision + ceil((date_part('epoch'::text, (LEAST(unpack_minutes."from", ((unpack_minutes.p).day + '24:00:00'::interval)) - (unpack_minutes.p).day)) / (60)::double precision)))
                     ELSE (1)::double precision
                 END)::integer AS i,
             (
                 CASE
                     WHEN (((unpack_minutes.p).minute_ IS NULL) AND (unpack_minutes."to" < ((unpack_minutes.p).day + '24:00:00'::interval))) THEN ceil((date_part('epoch'::text, (GREATEST(unpack_minutes."to", (unpack_minutes.p).day) - (unpack_minutes.p).day)) / (60)::double precision))
                     ELSE ((unpack_minutes.p).rows)::double precision
                 END)::integer AS j
          OFFSET 0) w
      CROSS JOIN LATERAL ( SELECT generate_series((w.i - 1), (w.j - 1)) AS place,
             unnest((unpack_minutes.p).minute_) AS minute_,
             unnest((unpack_minutes.p).n_[w.i:w.j]) AS n_,
             unnest((unpack_minutes.p).n_good_[w.i:w.j]) AS n_good_,
             unnest((unpack_minutes.p).known_[w.i:w.j]) AS known_,
             unnest((unpack_minutes.p).first_at_[w.i:w.j]) AS first_at_,
             unnest((unpack_minutes.p).last_at_[w.i:w.j]) AS last_at_,
             unnest((unpack_minutes.p).holds_[w.i:w.j]) AS holds_,
             unnest(plant.unpack_numbers((unpack_minutes.p).min, w.i, w.j)) AS min,
             unnest(plant.unpack_numbers((unpack_minutes.p).max, w.i, w.j)) AS max,
             unnest(plant.unpack_numbers((unpack_minutes.p).sum, w.i, w.j)) AS sum,
             unnest(plant.unpack_numbers((unpack_minutes.p).area, w.i, w.j)) AS area,
             unnest(plant.unpack_numbers((unpack_minutes.p).first, w.i, w.j)) AS first,
             unnest(plant.unpack_numbers((unpack_minutes.p).last, w.i, w.j)) AS last) u)
      CROSS JOIN LATERAL ( SELECT ((unpack_minutes.p).day + ('00:01:00'::interval * (COALESCE(u.minute_, u.place))::double precision)) AS bucket,
             COALESCE(u.n_good_, (unpack_minutes.p).n_good) AS n_good) b)
   WHERE ((b.bucket >= unpack_minutes."from") AND (b.bucket < unpack_minutes."to"));
END;

CREATE FUNCTION plant.gap_begins_between_minutes(channels integer[], "from" timestamp with time zone, "to" timestamp with time zone) RETURNS TABLE(channel_id integer, begins timestamp with time zone[])
    LANGUAGE sql STABLE
    BEGIN ATOMIC
 SELECT g.channel_id,
     array_agg(b.b) AS array_agg
    FROM ((plant.gap_begins(gap_begins_between_minutes.channels, gap_begins_between_minutes."from", gap_begins_between_minutes."to") g(channel_id, begins)
      CROSS JOIN LATERAL unnest(g.begins) b(b))
      CROSS JOIN LATERAL ( SELECT plant.minute_of(b.b) AS minute) m)
   WHERE ((NOT (EXISTS ( SELECT
            FROM plant.rollup_1m r
           WHERE ((r.channel_id = g.channel_id) AND (r.bucket = m.minute) AND (r.bucket >= plant.minute_of(gap_begins_between_minutes."from")) AND (r.bucket < gap_begins_between_minutes."to"))
          OFFSET 0))) AND (NOT (EXISTS ( SELECT
            FROM (plant.rollup_1m_packed p
              CROSS JOIN LATERAL plant.unpack_minutes(p.*, m.minute, (m.minute + '00:01:00'::interval)) unpack_minutes(channel_id, n, bucket, min, max, sum, area, first, last, known, first_time, last_time, n_good, holds))
           WHERE ((p.channel_id = g.channel_id) AND (p.day = plant.day_of(m.minute)) AND (p.day >= plant.day_of(gap_begins_between_minutes."from")) AND (p.day < gap_begins_between_minutes."to"))
          OFFSET 0))))
   GROUP BY g.channel_id;
END;

CREATE FUNCTION plant.gap_begins_within(channel integer, "from" timestamp with time zone, "to" timestamp with time zone) RETURNS boolean
    LANGUAGE sql STABLE
    BEGIN ATOMIC
 SELECT ((EXISTS ( SELECT
            FROM plant.gap g
           WHERE ((g.source_id = c.source_id) AND (g.channel_id = c.id) AND (g.from_time >= gap_begins_within."from") AND (g.from_time < gap_begins_within."to") AND (g.to_time IS DISTINCT FROM g.from_time) AND (g.backfilled_at IS NULL)))) OR (EXISTS ( SELECT
            FROM plant.gap g
           WHERE ((g.source_id = c.source_id) AND (g.channel_id IS NULL) AND (g.from_time >= gap_begins_within."from") AND (g.from_time < gap_begins_within."to") AND (g.to_time IS DISTINCT FROM g.from_time) AND (g.backfilled_at IS NULL)))))
    FROM plant.channel c
   WHERE (c.id = gap_begins_within.channel);
END;

CREATE FUNCTION plant.gaps_and_coverage(since timestamp with time zone, until timestamp with time zone, channels text[] DEFAULT NULL::text[], complete boolean DEFAULT false) RETURNS TABLE(channel text, covered_percent double precision, samples bigint, good bigint, gaps bigint, missing_seconds double precision, longest_seconds double precision, backfilled_seconds double precision, unrecorded bigint, unrecorded_seconds double precision, reasons text, expected bigint, missing bigint)
    LANGUAGE sql STABLE
    AS $$
WITH
wanted AS (
    SELECT c.channel_id, c.name, i.seconds AS expected, i.source_id, n.configured_at, n.retirements,
           s.kind = 'push' AS pushed, least(until, now(), c.ends) AS ends
    FROM plant.channels_like(channels) AS c
    JOIN plant.channel AS n ON n.id = c.channel_id
    JOIN plant.source AS s ON s.id = n.source_id
    LEFT JOIN plant.channel_interval AS i ON i.channel_id = c.channel_id
    WHERE c.kind <> 'text'
),
kept_out AS MATERIALIZED (
    SELECT * FROM plant.kept_out(since, until)
),
readings AS (
    SELECT w.channel_id, w.expected, s.time, s.status,
           lag(s.time, 1, since) OVER (PARTITION BY w.channel_id ORDER BY s.time) AS previous,
           lead(s.time) OVER (PARTITION BY w.channel_id ORDER BY s.time) IS NULL AS is_last
    FROM wanted AS w
    CROSS JOIN LATERAL plant.samples_between(ARRAY[w.channel_id], since, until) AS s
),
counts AS (
    SELECT r.channel_id, count(*) AS samples, count(*) FILTER (WHERE plant.quality(r.status) <> 'bad') AS good,
           min(r.time) AS first_time
    FROM readings AS r
    GROUP BY r.channel_id
),
-- A channel has to have something from the moment on at which it was configured, or of which it has a sample; nothing of
-- the time in which it was retired.
spans AS (
    SELECT w.*, c.samples, c.good, c.first_time, o.began, e.configured,
           (SELECT sum(extract(epoch FROM upper(r) - lower(r))) FROM unnest(e.configured) AS r) AS seconds
    FROM wanted AS w
    LEFT JOIN counts AS c ON c.channel_id = w.channel_id
    CROSS JOIN LATERAL (
        SELECT CASE WHEN w.configured_at IS NULL THEN since
                    ELSE greatest(since, least(w.configured_at, c.first_time)) END AS began
    ) AS o
    CROSS JOIN LATERAL (
        SELECT tstzmultirange(tstzrange(o.began, greatest(o.began, w.ends))) - w.retirements AS configured
    ) AS e
    WHERE NOT isempty(e.configured)
),
pieces AS (
    SELECT g.channel_id, g.reason, g.backfilled_at IS NOT NULL AS backfilled,
           tstzrange(greatest(g.from_time, since), least(coalesce(g.to_time, now()), until)) AS piece
    FROM plant.gap_channel AS g
    WHERE g.from_time < least(until, now()) AND coalesce(g.to_time, now()) > since
    UNION ALL
    SELECT k.channel_id, 'quarantined', false, tstzrange(k.from_time, k.to_time)
    FROM kept_out AS k
    WHERE k.from_time < k.to_time
    UNION ALL
    SELECT t.channel_id, 'time_stands_still', false,
           tstzrange(greatest(t.from_time, since), least(t.to_time, now(), until))
    FROM plant.standing(since, until) AS t
    WHERE greatest(t.from_time, since) < least(t.to_time, now(), until)
),
heard AS (
    SELECT w.channel_id, w.expected, w.began, least(w.first_time, min(lower(p.piece))) AS first_time
    FROM spans AS w
    LEFT JOIN pieces AS p ON p.channel_id = w.channel_id AND upper(p.piece) > w.began
    WHERE w.configured_at IS NOT NULL AND NOT w.pushed
    GROUP BY w.channel_id, w.expected, w.began, w.first_time
),
unread AS (
    SELECT h.channel_id, 'not_yet_read' AS reason, false AS backfilled, tstzrange(h.began, h.first_time) AS piece
    FROM heard AS h
    WHERE h.began < h.first_time AND extract(epoch FROM h.first_time - h.began) >= coalesce(h.expected, 0)
      -- What was before its configuration is a source timestamp: it was read at once.
      AND NOT plant.has_sample_before(h.channel_id, h.began)
),
-- What polls of a source and interval really took, since when and until when.
paces AS (
    SELECT e.source_id, e.seconds, e.pace, e.time AS from_time,
           lead(e.time, 1, 'infinity') OVER (PARTITION BY e.source_id, e.seconds ORDER BY e.time) AS to_time
    FROM (
        SELECT e.source_id, e.time, (e.detail ->> 'interval_seconds')::float8 AS seconds,
               CASE WHEN e.text = 'stretched' THEN (e.detail ->> 'pace_seconds')::float8 END AS pace
        FROM plant.event AS e
        WHERE e.type = 'poll_stretched' AND e.time < until
    ) AS e
),
stretched AS (
    SELECT DISTINCT w.channel_id
    FROM wanted AS w
    JOIN paces AS p ON p.source_id = w.source_id AND p.seconds = w.expected AND p.pace IS NOT NULL AND p.to_time > since
),
-- Overlapping gaps are joined, so that no second counts twice; what is still missing wins over what was backfilled.
joined AS (
    SELECT p.channel_id, coalesce(range_agg(e.piece) FILTER (WHERE NOT p.backfilled), '{}') AS missing,
           coalesce(range_agg(e.piece) FILTER (WHERE p.backfilled), '{}') AS backfilled,
           string_agg(DISTINCT p.reason, ', ' ORDER BY p.reason) AS reasons
    FROM (SELECT * FROM pieces UNION ALL SELECT * FROM unread) AS p
    JOIN spans AS w ON w.channel_id = p.channel_id
    CROSS JOIN LATERAL (SELECT tstzmultirange(p.piece) * w.configured AS piece) AS e
    WHERE NOT isempty(e.piece)
    GROUP BY p.channel_id
),
refused AS (
    SELECT k.channel_id, sum(k.n) AS n FROM kept_out AS k GROUP BY k.channel_id HAVING sum(k.n) > 0
),
lengths AS (
    SELECT j.channel_id, j.reasons,
           (SELECT count(*) FROM unnest(j.missing)) AS gaps,
           (SELECT coalesce(sum(extract(epoch FROM upper(r) - lower(r))), 0)
            FROM unnest(j.missing) AS r)::float8 AS missing,
           (SELECT coalesce(max(extract(epoch FROM upper(r) - lower(r))), 0)
            FROM unnest(j.missing) AS r)::float8 AS longest,
           (SELECT coalesce(sum(extract(epoch FROM upper(r) - lower(r))), 0)
            FROM unnest(j.backfilled - j.missing) AS r)::float8 AS backfilled
    FROM joined AS j
),
-- Of a channel that is read at an interval: silences of three intervals and more, up to the ends of the time asked for.
silences AS (
    SELECT r.channel_id, greatest(r.previous, w.began) AS from_time, r.time AS to_time
    FROM readings AS r
    JOIN spans AS w ON w.channel_id = r.channel_id
    WHERE extract(epoch FROM r.time - greatest(r.previous, w.began)) >= 3 * r.expected
      AND NOT EXISTS (SELECT FROM paces AS p
                      WHERE p.source_id = w.source_id AND p.seconds = w.expected
                        AND p.from_time <= r.time + (r.time - r.previous) AND p.to_time >= r.previous
                        AND extract(epoch FROM r.time - r.previous) < 3 * p.pace)
    UNION ALL
    SELECT r.channel_id, r.time, w.ends
    FROM readings AS r
    JOIN spans AS w ON w.channel_id = r.channel_id
    WHERE r.is_last
      AND extract(epoch FROM w.ends - r.time)
          >= 3 * greatest(r.expected, (SELECT max(p.pace) FROM paces AS p
                                       WHERE p.source_id = w.source_id AND p.seconds = w.expected AND p.to_time > r.time))
    UNION ALL
    SELECT w.channel_id, w.began, w.ends
    FROM spans AS w
    WHERE w.samples IS NULL
      AND (w.expected IS NOT NULL
           -- Of a channel that reports changes the last one holds, if there ever was one.
           OR (NOT w.pushed AND NOT plant.has_sample_before(w.channel_id, w.began)))
),
-- What of a silence no gap explains, backfilled or not. A remainder as short as an interval is its edge.
unexplained AS (
    SELECT s.channel_id, count(*) AS n, sum(extract(epoch FROM upper(r.piece) - lower(r.piece)))::float8 AS seconds
    FROM silences AS s
    JOIN spans AS w ON w.channel_id = s.channel_id
    LEFT JOIN joined AS j ON j.channel_id = s.channel_id
    CROSS JOIN LATERAL unnest(tstzmultirange(tstzrange(s.from_time, s.to_time)) * w.configured
                              - coalesce(j.missing + j.backfilled, '{}')) AS r (piece)
    WHERE extract(epoch FROM upper(r.piece) - lower(r.piece)) >= 3 * coalesce(w.expected, 0)
    GROUP BY s.channel_id
)
SELECT w.name,
       -- Rounded so little that 100 is nothing but all of it.
       round(greatest(0, 100 * (1 - (coalesce(l.missing, 0) + coalesce(u.seconds, 0))
                                    / w.seconds::float8))::numeric, 9)::float8,
       coalesce(w.samples, 0), coalesce(w.good, 0), coalesce(l.gaps, 0), coalesce(l.missing, 0), coalesce(l.longest, 0),
       coalesce(l.backfilled, 0), coalesce(u.n, 0), coalesce(u.seconds, 0),
       concat_ws(', ', l.reasons, CASE WHEN p.channel_id IS NOT NULL THEN 'poll_stretched' END),
       coalesce(w.samples, 0) + m.missing, m.missing
FROM spans AS w
LEFT JOIN stretched AS p ON p.channel_id = w.channel_id
LEFT JOIN refused AS k ON k.channel_id = w.channel_id
CROSS JOIN LATERAL (
    -- Polls are never exactly as far apart: one more than is due may be there.
    SELECT CASE WHEN w.expected IS NULL THEN k.n
                ELSE greatest(0, round(w.seconds / w.expected::numeric) - coalesce(w.samples, 0)) END::bigint AS missing
) AS m
LEFT JOIN lengths AS l ON l.channel_id = w.channel_id
LEFT JOIN unexplained AS u ON u.channel_id = w.channel_id
WHERE complete OR l.channel_id IS NOT NULL OR u.channel_id IS NOT NULL OR p.channel_id IS NOT NULL
   OR w.good < w.samples
ORDER BY 2, w.name
$$;

CREATE FUNCTION plant.gaps_are_dirty() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog'
    AS $$
DECLARE
    held CONSTANT timestamptz[] := coalesce(nullif(current_setting('plant.held_open', true), ''), '{}')::timestamptz[];
    minutes  timestamptz[];
    sources  int[];
    channels int[];
BEGIN
    IF TG_OP = 'INSERT' THEN
        SELECT array_agg(plant.minute_of(n.from_time)), array_agg(n.source_id), array_agg(n.channel_id)
        INTO minutes, sources, channels
        FROM fresh AS n
        WHERE n.to_time IS DISTINCT FROM n.from_time AND n.backfilled_at IS NULL;
    ELSIF TG_OP = 'UPDATE' THEN
        SELECT array_agg(plant.minute_of(n.from_time)), array_agg(n.source_id), array_agg(n.channel_id)
        INTO minutes, sources, channels
        FROM fresh AS n
        JOIN former AS f ON f.id = n.id
        WHERE (n.to_time IS DISTINCT FROM n.from_time AND n.backfilled_at IS NULL)
              <> (f.to_time IS DISTINCT FROM f.from_time AND f.backfilled_at IS NULL);
    ELSE
        SELECT array_agg(plant.minute_of(f.from_time)), array_agg(f.source_id), array_agg(f.channel_id)
        INTO minutes, sources, channels
        FROM former AS f
        WHERE f.to_time IS DISTINCT FROM f.from_time AND f.backfilled_at IS NULL;
    END IF;
    INSERT INTO plant.rollup_dirty (from_time, to_time, channels, onward, open_since)
    SELECT g.minute, g.minute + INTERVAL '1 minute', array_agg(DISTINCT c.id), true,
           CASE WHEN TG_OP = 'INSERT' AND g.minute = ANY (held) THEN clock_timestamp() END
    FROM unnest(minutes, sources, channels) AS g (minute, source_id, channel_id)
    CROSS JOIN LATERAL (
        SELECT g.channel_id AS id WHERE g.channel_id IS NOT NULL
        UNION ALL
        SELECT c.id FROM plant.channel AS c WHERE g.channel_id IS NULL AND c.source_id = g.source_id
    ) AS c
    GROUP BY g.minute;
    RETURN NULL;
END
$$;

CREATE FUNCTION plant.good_samples(channel integer, since timestamp with time zone, until timestamp with time zone) RETURNS TABLE("time" timestamp with time zone, value double precision)
    LANGUAGE sql STABLE
    AS $$
-- What is nearly nothing is 0, and what no sensor measures is left out: their squares are no float8, which is an error.
SELECT s.time, CASE WHEN abs(s.value) < 1e-50 THEN 0 ELSE s.value END
FROM plant.samples_between(ARRAY[channel], since, until) AS s
WHERE s.status >= 0        -- Bad is negative
  AND abs(s.value) < 1e50  -- NaN is above infinity here
$$;

CREATE FUNCTION plant.has_sample_before(channel integer, before timestamp with time zone) RETURNS boolean
    LANGUAGE sql STABLE
    SET search_path TO 'pg_catalog'
    AS $$
SELECT EXISTS (SELECT FROM plant.last_before(channel, TIMESTAMPTZ '1970-01-01 00:00:00+00', before))
$$;

COMMENT ON FUNCTION plant.has_sample_before(channel integer, before timestamp with time zone) IS 'Whether a channel ever had a sample before.';

CREATE FUNCTION plant.having_minutes(ids integer[], "from" timestamp with time zone) RETURNS integer[]
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog'
    SET plan_cache_mode TO 'force_custom_plan'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET max_parallel_workers_per_gather TO '0'
    AS $$
BEGIN
    RETURN ARRAY(
        SELECT c.id
        FROM unnest(ids) AS c (id)
        CROSS JOIN LATERAL (SELECT FROM plant.rollup_1m AS r WHERE r.channel_id = c.id AND r.bucket >= "from" LIMIT 1) AS r);
END
$$;

CREATE FUNCTION plant.hold_limit() RETURNS interval
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN '24:00:00'::interval;

CREATE TABLE plant.rollup_1h (
    channel_id integer NOT NULL,
    n integer NOT NULL,
    bucket timestamp with time zone NOT NULL,
    min double precision,
    max double precision,
    sum double precision NOT NULL,
    area double precision NOT NULL,
    first double precision,
    last double precision,
    known bigint NOT NULL,
    first_time timestamp with time zone,
    last_time timestamp with time zone,
    n_good integer NOT NULL,
    holds boolean NOT NULL
);

COMMENT ON TABLE plant.rollup_1h IS 'Hours as they are made. Read samples_1h.';

COMMENT ON COLUMN plant.rollup_1h.area IS 'Value times seconds over the known time.';

COMMENT ON COLUMN plant.rollup_1h.known IS 'µs of which the value is known.';

CREATE FUNCTION plant.hours_of(channels integer[], hour timestamp with time zone) RETURNS SETOF plant.rollup_1h
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog'
    SET plan_cache_mode TO 'force_custom_plan'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET max_parallel_workers_per_gather TO '0'
    AS $$
BEGIN
    RETURN QUERY
    WITH gaps AS MATERIALIZED (
        SELECT g.channel_id, g.begins
        FROM plant.gap_begins_between_minutes(channels, plant.later(hour, -plant.hold_limit()),
                                              plant.later(hour, INTERVAL '1 hour')) AS g
    )
    SELECT c.id, h.n::int, hour, h.min, h.max, plant.tidy(h.sum, h.n, e.most),
           plant.tidy(h.area + coalesce(plant.rollup_weight(e.carries) * (e.behind / 1e6), 0), h.entries + 1, e.most * 3600),
           h.firsts[1], h.lasts[cardinality(h.lasts)], (h.known + coalesce(e.behind, 0))::bigint, h.first_time, h.last_time,
           h.n_good::int, coalesce(e.carried_until >= 3.6e9, false)
    FROM unnest(channels) AS c (id)
    LEFT JOIN gaps AS g ON g.channel_id = c.id
    CROSS JOIN LATERAL (
        SELECT count(*) AS entries, sum((v.line).n) AS n, sum((v.line).n_good) AS n_good, min((v.line).min) AS min, max((v.line).max) AS max,
               sum((v.line).sum ORDER BY v.until) AS sum,
               sum(coalesce(plant.rollup_weight(v.before) * (v.held / 1e6), 0) + coalesce((v.line).area, 0)
                   ORDER BY v.until) AS area,
               sum(coalesce(v.held, 0) + coalesce((v.line).known, 0)) AS known,
               array_agg((v.line).first ORDER BY v.until) FILTER (WHERE (v.line).n_good > 0) AS firsts,
               array_agg((v.line).last ORDER BY v.until) FILTER (WHERE (v.line).n_good > 0) AS lasts,
               min((v.line).first_time) AS first_time, max((v.line).last_time) AS last_time, max(v.until) AS until,
               array_agg(v.carries ORDER BY v.until) AS carries, array_agg(v.carried_until ORDER BY v.until) AS carried_until
        FROM plant.minute_course(c.id, g.begins, hour) AS v
    ) AS h
    CROSS JOIN LATERAL (
        SELECT l.carries, l.carried_until,
               CASE WHEN l.carries IS NOT NULL THEN greatest(0, least(3.6e9, l.carried_until) - h.until) END AS behind,
               CASE WHEN h.n_good > 0 THEN plant.rollup_weight(least(greatest(-h.min, h.max), 1e280)) ELSE 0 END AS most
        FROM (SELECT h.carries[h.entries] AS carries,
                     CASE WHEN h.carries[h.entries] IS NOT NULL THEN h.carried_until[h.entries] END AS carried_until) AS l
    ) AS e
    WHERE h.n > 0;
END
$$;

CREATE FUNCTION plant.implausible(since timestamp with time zone, until timestamp with time zone, channels text[] DEFAULT NULL::text[], bucket interval DEFAULT '00:00:30'::interval, learn interval DEFAULT '01:00:00'::interval, rise double precision DEFAULT 0.005, level text DEFAULT 'level'::text, inlet text DEFAULT 'inlet_flow'::text, outlet text DEFAULT 'outlet_flow'::text) RETURNS TABLE(channel text, rule text, begins timestamp with time zone, ends timestamp with time zone, measured double precision, plausible double precision, beside text)
    LANGUAGE sql STABLE
    AS $$
WITH
wanted AS (
    SELECT c.channel_id, c.name, c.unit, c.unit_path, c.quantity, c.span, c.kind FROM plant.channels_like(channels) AS c
),
tanks AS (
    SELECT l.channel_id AS level_id, l.name, l.span, i.channel_id AS inlet_id, o.channel_id AS outlet_id,
           -- What is less than a hundredth of the range is a closed valve.
           i.span * 0.01 AS inlet_shut, o.span * 0.01 AS outlet_shut, i.name AS inlet_name, o.name AS outlet_name
    FROM wanted AS l
    JOIN plant.channels_like(NULL) AS i ON i.unit_path = l.unit_path AND i.quantity = inlet
    JOIN plant.channels_like(NULL) AS o ON o.unit_path = l.unit_path AND o.quantity = outlet
    WHERE l.quantity = level AND l.kind = 'analog'
),
twins AS (
    SELECT a.channel_id AS one_id, a.name, b.channel_id AS other_id, b.name AS beside, coalesce(a.span, b.span) AS span
    FROM wanted AS a
    JOIN plant.channels_like(NULL) AS b
      ON b.quantity = a.quantity AND b.unit = a.unit AND b.kind = a.kind AND b.name <> a.name
     AND regexp_replace(b.unit_path, '^.*/', '') = regexp_replace(a.unit_path, '^.*/', '')
    -- Each pair once, unless only one of it was asked for.
    WHERE a.kind = 'analog' AND (a.name < b.name OR b.channel_id NOT IN (SELECT w.channel_id FROM wanted AS w))
),
needed AS (
    SELECT c.channel_id, c.name, c.quantity
    FROM plant.channels_like(NULL) AS c
    WHERE c.channel_id IN (SELECT unnest(ARRAY[t.level_id, t.inlet_id, t.outlet_id]) FROM tanks AS t)
       OR c.channel_id IN (SELECT unnest(ARRAY[t.one_id, t.other_id]) FROM twins AS t)
),
means AS MATERIALIZED (
    SELECT r.channel_id, r.bucket AS time, r.value
    FROM needed AS n
    CROSS JOIN LATERAL plant.resampled(ARRAY[n.name], since - learn, until, bucket, learn) AS r
),
-- The level's move between two means against the flows of both buckets.
balances AS (
    SELECT t.name, t.span, t.inlet_name, t.outlet_name, l.time,
           l.value - lag(l.value) OVER per_tank AS move,
           (i.value - o.value + lag(i.value - o.value) OVER per_tank) / 2 AS net,
           greatest(i.value, lag(i.value) OVER per_tank) < t.inlet_shut AS inlet_shut,
           greatest(o.value, lag(o.value) OVER per_tank) < t.outlet_shut AS outlet_shut
    FROM tanks AS t
    JOIN means AS l ON l.channel_id = t.level_id
    JOIN means AS i ON i.channel_id = t.inlet_id AND i.time = l.time
    JOIN means AS o ON o.channel_id = t.outlet_id AND o.time = l.time
    WINDOW per_tank AS (PARTITION BY t.level_id ORDER BY l.time)
),
learned AS (
    SELECT b.name, regr_slope(b.move, b.net) AS slope, regr_intercept(b.move, b.net) AS drift,
           sqrt(regr_syy(b.move, b.net) * (1 - regr_r2(b.move, b.net)) / count(*)) AS spread
    FROM balances AS b
    WHERE b.time < since AND b.move IS NOT NULL
    GROUP BY b.name
    HAVING count(*) >= 20 AND regr_r2(b.move, b.net) > 0.8
),
differences AS (
    SELECT t.name, t.beside, t.span, a.time, a.value, b.value AS other, a.value - b.value AS difference
    FROM twins AS t
    JOIN means AS a ON a.channel_id = t.one_id
    JOIN means AS b ON b.channel_id = t.other_id AND b.time = a.time
),
usual AS (
    SELECT d.name, d.beside, avg(d.difference) AS mean,
           greatest(stddev_pop(d.difference), coalesce(d.span, 0) * 5e-4) AS spread
    FROM differences AS d
    WHERE d.time < since
    GROUP BY d.name, d.beside, d.span
    HAVING count(*) >= 20
),
-- Each bucket against each rule. What is measured and what would be plausible are sums for moves, means for values.
judged AS (
    SELECT b.name, 'fills while its inlet is shut' AS rule, b.inlet_name AS beside, b.time, b.span,
           coalesce(b.inlet_shut AND b.move > 0, false) AS broken, b.move AS measured, 0::float8 AS plausible
    FROM balances AS b
    UNION ALL
    SELECT b.name, 'falls while its outlet is shut', b.outlet_name, b.time, b.span,
           coalesce(b.outlet_shut AND b.move < 0, false), b.move, 0
    FROM balances AS b
    UNION ALL
    SELECT b.name, 'does not follow its flows', concat_ws(', ', b.inlet_name, b.outlet_name), b.time, b.span,
           coalesce(abs(b.move - l.slope * b.net - l.drift) > greatest(6 * l.spread, b.span * 1e-5), false), b.move,
           l.slope * b.net + l.drift
    FROM balances AS b
    JOIN learned AS l ON l.name = b.name
    UNION ALL
    SELECT d.name, 'differs from its twin', d.beside, d.time, d.span,
           abs(d.difference - u.mean) > 6 * u.spread, d.value, d.other + u.mean
    FROM differences AS d
    JOIN usual AS u ON u.name = d.name AND u.beside = d.beside
),
-- Buckets in a row that break a rule are one episode; one that keeps it between two that break it ends none.
marked AS (
    SELECT j.*, j.time - lag(j.time) OVER (PARTITION BY j.name, j.rule, j.beside ORDER BY j.time) > 2 * bucket AS apart
    FROM judged AS j
    WHERE j.broken AND j.time >= since
),
numbered AS (
    SELECT m.*, count(*) FILTER (WHERE m.apart) OVER (PARTITION BY m.name, m.rule, m.beside ORDER BY m.time) AS episode
    FROM marked AS m
),
episodes AS (
    SELECT n.name, n.rule, n.beside, n.span, min(n.time) AS begins, max(n.time) + bucket AS ends,
           CASE WHEN n.rule LIKE 'differs%' THEN avg(n.measured) ELSE sum(n.measured) END AS measured,
           CASE WHEN n.rule LIKE 'differs%' THEN avg(n.plausible) ELSE sum(n.plausible) END AS plausible,
           count(*) AS buckets
    FROM numbered AS n
    GROUP BY n.name, n.rule, n.beside, n.span, n.episode
)
SELECT e.name, e.rule, e.begins, e.ends, e.measured, e.plausible, e.beside
FROM episodes AS e
WHERE e.buckets >= 3 AND (e.rule LIKE 'differs%' OR abs(e.measured - e.plausible) >= rise * e.span)
ORDER BY e.begins, e.name, e.rule
$$;

CREATE FUNCTION plant.in_words(detail jsonb) RETURNS text
    LANGUAGE sql STABLE
    AS $_$
SELECT string_agg(replace(d.key, '_', ' ') || ' ' || w.words, ', ' ORDER BY d.place)
FROM jsonb_each(detail) WITH ORDINALITY AS d (key, value, place)
CROSS JOIN LATERAL (SELECT d.value #>> '{}' AS text, jsonb_typeof(d.value) AS type) AS v
CROSS JOIN LATERAL (
    SELECT nullif(CASE
        WHEN v.type = 'number' AND d.key ~ '(^|_)(since|until|at|from|to|time|us)$' AND abs(v.text::numeric) >= 1e14
            THEN to_char(to_timestamp(v.text::float8 / 1e6) AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS "UTC"')
        WHEN v.type = 'number' AND abs(v.text::numeric) >= 0.001 THEN trim_scale(round(v.text::numeric, 6))::text
        WHEN v.type = 'string' AND v.text ~ '^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d(:\d\d)?)$'
            THEN to_char(v.text::timestamptz AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS "UTC"')
        WHEN v.type = 'boolean' THEN CASE WHEN v.text::boolean THEN 'yes' ELSE 'no' END
        WHEN v.type = 'object' THEN NULL -- what changed from what to what: the text says it
        WHEN v.type = 'array' THEN (SELECT string_agg(a.item, ' ') FROM jsonb_array_elements_text(d.value) AS a (item))
        ELSE v.text
    END, '') AS words
) AS w
WHERE w.words IS NOT NULL AND d.key NOT IN ('state', 'active', 'revision', 'text_escaped')
$_$;

CREATE FUNCTION plant.kept_out(since timestamp with time zone, until timestamp with time zone) RETURNS TABLE(channel_id integer, from_time timestamp with time zone, to_time timestamp with time zone, n bigint)
    LANGUAGE sql STABLE
    AS $$
WITH
-- What came within the hour before may still be what is not known.
came AS MATERIALIZED (
    SELECT q.channel_id, q.received_at
    FROM plant.quarantine AS q
    WHERE q.received_at >= since - INTERVAL '1 hour' AND q.received_at < until
      AND q.channel_id IS NOT NULL AND NOT q.detail ?| ARRAY['event', 'gap', 'count']
),
readings AS (
    SELECT c.channel_id, c.received_at AS at, false AS stored FROM came AS c
    UNION ALL
    SELECT s.channel_id, s.time, true
    FROM (SELECT DISTINCT c.channel_id FROM came AS c) AS c
    CROSS JOIN LATERAL plant.samples_between(ARRAY[c.channel_id], since - INTERVAL '1 hour', until) AS s
),
ahead AS (
    SELECT r.channel_id, r.at, r.stored,
           min(r.at) FILTER (WHERE r.stored) OVER (PARTITION BY r.channel_id ORDER BY r.at DESC, r.stored) AS next
    FROM readings AS r
)
SELECT a.channel_id, greatest(since, min(a.at)), coalesce(a.next, least(until, now())), count(*) FILTER (WHERE a.at >= since)
FROM ahead AS a
WHERE NOT a.stored AND coalesce(a.next, until) > since
GROUP BY a.channel_id, a.next
$$;

COMMENT ON FUNCTION plant.kept_out(since timestamp with time zone, until timestamp with time zone) IS 'Intervals in which a channel''s samples came and are in quarantine: from the arrival to the next sample that is stored.';

CREATE FUNCTION plant.lacks_seal(from_time timestamp with time zone, to_time timestamp with time zone) RETURNS boolean
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog'
    SET "TimeZone" TO 'UTC'
    AS $_$
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
$_$;

CREATE FUNCTION plant.later(at timestamp with time zone, by interval) RETURNS timestamp with time zone
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN (at + by);

CREATE FUNCTION plant.make_chunk(relation regclass, t timestamp with time zone) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog'
    SET lock_timeout TO '2s'
    AS $_$
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
$_$;

CREATE FUNCTION plant.minute_after(channel integer, at timestamp with time zone) RETURNS TABLE(bucket timestamp with time zone)
    LANGUAGE sql STABLE ROWS 1 PARALLEL SAFE
    BEGIN ATOMIC
 SELECT COALESCE(p.bucket, r.bucket) AS "coalesce"
    FROM ((( SELECT) one
      LEFT JOIN LATERAL ( SELECT r_1.bucket
            FROM plant.rollup_1m r_1
           WHERE ((r_1.channel_id = minute_after.channel) AND (r_1.bucket >= minute_after.at) AND (r_1.bucket <= plant.later(minute_after.at, plant.hold_limit())))
           ORDER BY r_1.bucket
          LIMIT 1) r ON (true))
      LEFT JOIN LATERAL ( SELECT u.bucket
            FROM (plant.rollup_1m_packed p_1
              CROSS JOIN LATERAL plant.unpack_minutes(p_1.*, minute_after.at, plant.later(minute_after.at, (plant.hold_limit() + '00:01:00'::interval))) u(channel_id, n, bucket, min, max, sum, area, first, last, known, first_time, last_time, n_good, holds))
           WHERE ((p_1.channel_id = minute_after.channel) AND (p_1.day >= plant.day_of(minute_after.at)) AND (p_1.day <= plant.later(minute_after.at, plant.hold_limit())) AND ((r.bucket IS NULL) OR (p_1.day <= r.bucket)))
           ORDER BY u.bucket
          LIMIT 1) p ON (true))
   WHERE (COALESCE(p.bucket, r.bucket) IS NOT NULL);
END;

CREATE FUNCTION plant.minute_before(channel integer, at timestamp with time zone) RETURNS SETOF plant.rollup_1m
    LANGUAGE sql STABLE ROWS 1 PARALLEL SAFE
    BEGIN ATOMIC
 SELECT g.channel_id,
     g.n,
     g.bucket,
     g.min,
     g.max,
     g.sum,
     g.area,
     g.first,
     g.last,
     g.known,
     g.first_time,
     g.last_time,
     g.n_good,
     g.holds
    FROM ((( SELECT) one
      LEFT JOIN LATERAL ( SELECT m.*::plant.rollup_1m AS line,
             m.bucket
            FROM plant.rollup_1m m
           WHERE ((m.channel_id = minute_before.channel) AND (m.bucket >= plant.later(minute_before.at, ((- plant.hold_limit()) - '00:01:00'::interval))) AND (m.bucket < minute_before.at))
           ORDER BY m.bucket DESC
          LIMIT 1) r ON (true))
      CROSS JOIN LATERAL ( SELECT (r.line).channel_id AS channel_id,
             (r.line).n AS n,
             (r.line).bucket AS bucket,
             (r.line).min AS min,
             (r.line).max AS max,
             (r.line).sum AS sum,
             (r.line).area AS area,
             (r.line).first AS first,
             (r.line).last AS last,
             (r.line).known AS known,
             (r.line).first_time AS first_time,
             (r.line).last_time AS last_time,
             (r.line).n_good AS n_good,
             (r.line).holds AS holds
           WHERE (r.bucket IS NOT NULL)
         UNION ALL
          SELECT u.channel_id,
             u.n,
             u.bucket,
             u.min,
             u.max,
             u.sum,
             u.area,
             u.first,
             u.last,
             u.known,
             u.first_time,
             u.last_time,
             u.n_good,
             u.holds
            FROM (plant.rollup_1m_packed p
              CROSS JOIN LATERAL plant.unpack_minutes(p.*, plant.later(minute_before.at, ((- plant.hold_limit()) - '00:01:00'::interval)), minute_before.at) u(channel_id, n, bucket, min, max, sum, area, first, last, known, first_time, last_time, n_good, holds))
           WHERE ((p.channel_id = minute_before.channel) AND (p.day < minute_before.at) AND (p.day >= plant.day_of(plant.later(minute_before.at, ((- plant.hold_limit()) - '00:01:00'::interval)))) AND ((r.bucket IS NULL) OR (p.day > r.bucket)))) g)
   ORDER BY g.bucket DESC
  LIMIT 1;
END;

CREATE FUNCTION plant.minutes_between(channels integer[], "from" timestamp with time zone, "to" timestamp with time zone) RETURNS SETOF plant.rollup_1m
    LANGUAGE sql STABLE PARALLEL SAFE
    BEGIN ATOMIC
 SELECT r.channel_id,
     r.n,
     r.bucket,
     r.min,
     r.max,
     r.sum,
     r.area,
     r.first,
     r.last,
     r.known,
     r.first_time,
     r.last_time,
     r.n_good,
     r.holds
    FROM plant.rollup_1m r
   WHERE ((r.channel_id = ANY (minutes_between.channels)) AND (r.bucket >= minutes_between."from") AND (r.bucket < minutes_between."to"))
 UNION ALL
  SELECT u.channel_id,
     u.n,
     u.bucket,
     u.min,
     u.max,
     u.sum,
     u.area,
     u.first,
     u.last,
     u.known,
     u.first_time,
     u.last_time,
     u.n_good,
     u.holds
    FROM (plant.rollup_1m_packed p
      CROSS JOIN LATERAL plant.unpack_minutes(p.*, minutes_between."from", minutes_between."to") u(channel_id, n, bucket, min, max, sum, area, first, last, known, first_time, last_time, n_good, holds))
   WHERE ((p.channel_id = ANY (minutes_between.channels)) AND (p.day >= plant.day_of(minutes_between."from")) AND (p.day < minutes_between."to"));
END;

COMMENT ON FUNCTION plant.minutes_between(channels integer[], "from" timestamp with time zone, "to" timestamp with time zone) IS 'Rows of samples_1m by channels and times, with sums (sum, area, known) in place of averages.';

CREATE FUNCTION plant.minute_course(channel integer, gaps timestamp with time zone[], hour timestamp with time zone) RETURNS TABLE(until double precision, line plant.rollup_1m, before double precision, held double precision, carries double precision, carried_until double precision)
    LANGUAGE sql STABLE
    BEGIN ATOMIC
 SELECT v.until,
     v.line,
     v.before,
     v.held,
     v.carries,
     v.carried_until
    FROM ( SELECT u.until,
             u.line,
             u.carries,
             u.carried_until,
             lag(u.carries) OVER course AS before,
                 CASE
                     WHEN (lag(u.carries) OVER course IS NOT NULL) THEN GREATEST((0)::double precision, (LEAST(u.begins, lag(u.carried_until) OVER course) - GREATEST((0)::double precision, lag(u.until) OVER course)))
                     ELSE NULL::double precision
                 END AS held
            FROM ( SELECT b.begins,
                     (b.begins + ('60000000'::numeric)::double precision) AS until,
                     m.*::plant.rollup_1m AS line,
                         CASE
                             WHEN m.holds THEN m.last
                             ELSE NULL::double precision
                         END AS carries,
                     round((date_part('epoch'::text, ((m.last_time + plant.hold_limit()) - minute_course.hour)) * ('1000000'::numeric)::double precision)) AS carried_until
                    FROM (plant.minutes_between(ARRAY[minute_course.channel], minute_course.hour, plant.later(minute_course.hour, '01:00:00'::interval)) m(channel_id, n, bucket, min, max, sum, area, first, last, known, first_time, last_time, n_good, holds)
                      CROSS JOIN LATERAL ( SELECT round((date_part('epoch'::text, (m.bucket - minute_course.hour)) * ('1000000'::numeric)::double precision)) AS begins) b)
                 UNION ALL
                  SELECT b.begins,
                     (b.begins + ('60000000'::numeric)::double precision),
                     NULL::plant.rollup_1m,
                         CASE
                             WHEN m.holds THEN m.last
                             ELSE NULL::double precision
                         END AS "case",
                     round((date_part('epoch'::text, ((m.last_time + plant.hold_limit()) - minute_course.hour)) * ('1000000'::numeric)::double precision)) AS round
                    FROM (plant.minute_before(minute_course.channel, minute_course.hour) m(channel_id, n, bucket, min, max, sum, area, first, last, known, first_time, last_time, n_good, holds)
                      CROSS JOIN LATERAL ( SELECT round((date_part('epoch'::text, (m.bucket - minute_course.hour)) * ('1000000'::numeric)::double precision)) AS begins) b)
                 UNION ALL
                  SELECT b.begins,
                     (b.begins + (0.5)::double precision),
                     NULL::plant.rollup_1m,
                     NULL::double precision,
                     NULL::double precision
                    FROM (unnest(minute_course.gaps) g(g)
                      CROSS JOIN LATERAL ( SELECT round((date_part('epoch'::text, (g.g - minute_course.hour)) * ('1000000'::numeric)::double precision)) AS begins) b)) u
           WINDOW course AS (ORDER BY u.until)) v
   WHERE (v.until > (0.5)::double precision);
END;

CREATE FUNCTION plant.minutes_of(channels integer[], "from" timestamp with time zone, "to" timestamp with time zone) RETURNS SETOF plant.rollup_1m
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog'
    SET plan_cache_mode TO 'force_custom_plan'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET max_parallel_workers_per_gather TO '0'
    AS $$
DECLARE
    since CONSTANT timestamptz := "from" - plant.hold_limit();
    hold  CONSTANT float8 := date_part('epoch', plant.hold_limit()) * 1e6;
BEGIN
    RETURN QUERY
    WITH gaps AS MATERIALIZED (
        SELECT g.channel_id, g.begins FROM plant.gap_begins(channels, since, "to") AS g
    )
    SELECT c.id, m.n::int, "from" + INTERVAL '1 minute' * m.minute, m.min, m.max,
           coalesce(plant.tidy(m.sum, m.n, w.most), 0), plant.tidy(m.area + w.behind, m.n + 1, w.most * 60),
           m.goods[1], m.goods[m.n_good], (m.known + h.left_over)::bigint,
           "from" + INTERVAL '1 microsecond' * m.first_at, "from" + INTERVAL '1 microsecond' * m.last_at,
           m.n_good::int, coalesce(m.last_at = m.end_at, false)
    FROM unnest(channels) AS c (id)
    LEFT JOIN gaps AS g ON g.channel_id = c.id
    CROSS JOIN LATERAL (
        SELECT v.minute, count(v.sample) AS n, count(v.good) AS n_good, min(v.good) AS min, max(v.good) AS max,
               sum(v.weight ORDER BY v.at) AS sum, coalesce(sum(v.before * (v.held / 1e6) ORDER BY v.at), 0) AS area,
               coalesce(sum(v.held), 0) AS known,
               array_agg(v.good ORDER BY v.at) FILTER (WHERE v.good IS NOT NULL) AS goods,
               min(v.good_at) AS first_at, max(v.good_at) AS last_at, max(v.at) AS end_at
        FROM (
            SELECT u.minute, u.at, u.good, u.sample, u.weight, lag(u.weight) OVER course AS before,
                   CASE WHEN u.good IS NOT NULL THEN u.at END AS good_at,
                   -- µs of this minute before this sample, through which the value before it held
                   CASE WHEN lag(u.weight) OVER course IS NOT NULL
                        THEN greatest(0, least(floor(u.at), lag(u.at) OVER course + hold)
                                         - greatest(lag(u.at) OVER course, 6e7 * u.minute)) END AS held
            FROM (
                SELECT s.at, s.good, s.sample, floor(s.at / 6e7) AS minute, plant.rollup_weight(s.good) AS weight
                FROM plant.course(c.id, g.begins, since, "from", "to") AS s
            ) AS u
            WINDOW course AS (ORDER BY u.minute, u.at)
        ) AS v
        WHERE v.at >= 0
        GROUP BY v.minute
    ) AS m
    CROSS JOIN LATERAL (
        -- µs behind the last sample, through which it holds
        SELECT CASE WHEN m.last_at = m.end_at THEN 6e7 * (m.minute + 1) - m.last_at ELSE 0 END AS left_over
    ) AS h
    CROSS JOIN LATERAL (
        SELECT CASE WHEN h.left_over > 0 THEN plant.rollup_weight(m.goods[m.n_good]) * (h.left_over / 1e6) ELSE 0 END AS behind,
               CASE WHEN m.n_good > 0 THEN plant.rollup_weight(least(greatest(-m.min, m.max), 1e280)) ELSE 0 END AS most
    ) AS w
    WHERE m.n > 0;
END
$$;

CREATE FUNCTION plant.not_dropped(channels integer[], what text, at timestamp with time zone) RETURNS integer[]
    LANGUAGE sql STABLE
    SET search_path TO 'pg_catalog'
    AS $$
SELECT coalesce(array_agg(i.id), '{}')
FROM unnest(channels) AS i (id)
LEFT JOIN plant.channel AS c ON c.id = i.id
LEFT JOIN plant.dropped AS d ON d.what = not_dropped.what AND d.retention = coalesce(c.retention, 'default')
WHERE d.until IS NULL OR d.until <= at
$$;

CREATE FUNCTION plant.not_following(ids integer[], times bigint[], "values" double precision[], minute timestamp with time zone) RETURNS integer[]
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog'
    SET plan_cache_mode TO 'force_custom_plan'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET max_parallel_workers_per_gather TO '0'
    AS $$
BEGIN
    RETURN ARRAY(
        SELECT c.id
        FROM unnest(ids, times, "values") AS c (id, time, value)
        LEFT JOIN LATERAL (
            SELECT r.bucket, r.last_time, r.last, r.holds
            FROM plant.rollup_1m AS r
            WHERE r.channel_id = c.id AND r.bucket >= plant.later(minute, -plant.hold_limit())
            ORDER BY r.bucket DESC LIMIT 1
        ) AS r ON true
        CROSS JOIN LATERAL (SELECT plant.later(r.bucket, INTERVAL '1 minute') AS ended) AS e
        WHERE NOT coalesce(r.bucket < minute
                           AND CASE WHEN c.value IS NULL
                                    THEN NOT r.holds OR (e.ended < minute AND plant.gap_begins_within(c.id, e.ended, minute))
                                    ELSE r.holds AND r.last = c.value
                                         AND r.last_time = TIMESTAMPTZ 'epoch' + c.time * INTERVAL '1 microsecond'
                                         AND (e.ended >= minute OR NOT plant.gap_begins_within(c.id, e.ended, minute)) END,
                           false));
END
$$;

CREATE FUNCTION plant.oldest_in(relation regclass, column_name name) RETURNS timestamp with time zone
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog'
    AS $_$
DECLARE
    oldest timestamptz;
BEGIN
    EXECUTE format('SELECT min(o.oldest)
                    FROM (SELECT c.id FROM plant.channel AS c UNION ALL SELECT 0) AS c (id)
                    CROSS JOIN LATERAL (SELECT r.%1$I AS oldest FROM %2$s AS r WHERE r.channel_id = c.id
                                        ORDER BY r.%1$I LIMIT 1) AS o', column_name, relation) INTO oldest;
    RETURN oldest;
END
$_$;

CREATE FUNCTION plant.open_for() RETURNS interval
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN '00:03:00'::interval;

CREATE FUNCTION plant.pack(channel_id integer, hour timestamp with time zone, times timestamp with time zone[], "values" double precision[], statuses integer[]) RETURNS plant.samples_packed
    LANGUAGE plpgsql STABLE PARALLEL SAFE
    AS $$
DECLARE
    p plant.samples_packed;
BEGIN
    p.channel_id := channel_id;
    p.hour := hour;
    p.n := cardinality(times);
    p.status := statuses[1];
    IF statuses <> array_fill(p.status, ARRAY[p.n]) THEN
        p.statuses := statuses;
    END IF;
    p := plant.pack_times(p, times);
    p := plant.pack_values(p, "values");
    IF ARRAY(SELECT u.time FROM plant.unpack(p) AS u) IS DISTINCT FROM times THEN
        RAISE EXCEPTION 'times of channel % in the hour from % do not come back from the packed form', channel_id, hour;
    END IF;
    RETURN p;
END
$$;

CREATE PROCEDURE plant.pack_before(IN t timestamp with time zone)
    LANGUAGE plpgsql
    AS $$
BEGIN
    CALL plant._pack_chunks(t, false);
END
$$;

COMMENT ON PROCEDURE plant.pack_before(IN t timestamp with time zone) IS 'Pack the whole hours before t, in small transactions that nobody waits for; columnstored days stay. CALL it outside a transaction.';

CREATE FUNCTION plant.pack_hour(from_time timestamp with time zone, channels integer[]) RETURNS bigint
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog'
    SET plan_cache_mode TO 'force_custom_plan'
    SET jit TO 'off'
    AS $$
DECLARE
    left_raw bigint;
BEGIN
    IF NOT pg_try_advisory_xact_lock(7361023400153) THEN
        RETURN NULL;
    END IF;
    WITH moved AS (
        DELETE FROM plant.samples_raw AS r
        WHERE r.time >= from_time AND r.time < from_time + INTERVAL '1 hour' AND r.channel_id = ANY (channels)
        RETURNING r.time, r.channel_id, r.value, r.status
    ),
    packed AS MATERIALIZED (
        SELECT p.channel_id, u.time, u.value, u.status
        FROM plant.samples_packed AS p
        CROSS JOIN LATERAL plant.unpack(p) AS u
        WHERE p.hour = from_time AND p.channel_id IN (SELECT m.channel_id FROM moved AS m)
    ),
    fresh AS MATERIALIZED (
        SELECT m.time, m.channel_id, m.value, m.status
        FROM moved AS m
        WHERE NOT EXISTS (SELECT FROM packed AS p WHERE p.channel_id = m.channel_id AND p.time = m.time)
    ),
    conflict AS (
        INSERT INTO plant.event (time, id, type, source_id, channel_id, status, detail)
        SELECT d.time, plant.conflict_id(d.time, d.channel_id, d.detail), 'conflict', c.source_id, d.channel_id,
               d.status, d.detail
        FROM (
            SELECT m.time, m.channel_id, m.status,
                   jsonb_build_object('kept_value', p.value::text, 'kept_status', plant.status_hex(p.status),
                                      'refused_value', m.value::text,
                                      'refused_status', plant.status_hex(m.status)) AS detail
            FROM moved AS m
            JOIN packed AS p ON p.channel_id = m.channel_id AND p.time = m.time
            WHERE float8send(p.value) <> float8send(m.value) OR p.status <> m.status
        ) AS d
        LEFT JOIN plant.channel AS c ON c.id = d.channel_id
        -- The writer may have recorded it when the hour was not packed yet. It writes values in Python's words.
        WHERE NOT EXISTS (
            SELECT FROM plant.event AS e
            WHERE e.time = d.time AND e.channel_id = d.channel_id AND e.type = 'conflict' AND e.status = d.status
              AND (e.detail ->> 'refused_value')::float8::text = d.detail ->> 'refused_value'
        )
        ON CONFLICT (time, id) DO NOTHING
    ),
    whole AS (
        SELECT f.channel_id, f.time, f.value, f.status FROM fresh AS f
        UNION ALL
        SELECT p.channel_id, p.time, p.value, p.status
        FROM packed AS p
        WHERE p.channel_id IN (SELECT f.channel_id FROM fresh AS f)
    ),
    hours AS (
        INSERT INTO plant.samples_packed AS old
        SELECT s.*
        FROM (
            SELECT w.channel_id, array_agg(w.time ORDER BY w.time) AS times,
                   array_agg(w.value ORDER BY w.time) AS "values", array_agg(w.status ORDER BY w.time) AS statuses
            FROM whole AS w
            GROUP BY w.channel_id
        ) AS g
        CROSS JOIN LATERAL plant.pack(g.channel_id, from_time, g.times, g."values", g.statuses) AS s
        ON CONFLICT (channel_id, hour) DO UPDATE
        SET start = excluded.start, step = excluded.step, base = excluded.base, divisor = excluded.divisor,
            n = excluded.n, unit = excluded.unit, status = excluded.status, single = excluded.single,
            t0 = excluded.t0, t1 = excluded.t1, t2 = excluded.t2, t3 = excluded.t3,
            v0 = excluded.v0, v1 = excluded.v1, v2 = excluded.v2, v3 = excluded.v3,
            float4s = excluded.float4s, float8s = excluded.float8s, statuses = excluded.statuses
        RETURNING old.channel_id
    ),
    until AS (
        INSERT INTO plant.packed_channel AS c (channel_id, until)
        SELECT h.channel_id, from_time + INTERVAL '1 hour' FROM hours AS h
        ON CONFLICT (channel_id) DO UPDATE SET until = excluded.until WHERE c.until < excluded.until
    )
    SELECT count(*) INTO left_raw FROM moved;
    IF left_raw > 0 THEN
        UPDATE plant.packed_until AS u SET until = from_time + INTERVAL '1 hour'
        WHERE u.until < from_time + INTERVAL '1 hour';
        DELETE FROM plant.packed_chunk AS c WHERE c.from_time <= pack_hour.from_time AND c.to_time > pack_hour.from_time;
    END IF;
    RETURN left_raw;
END
$$;

CREATE FUNCTION plant.pack_minutes(channel integer, day timestamp with time zone) RETURNS plant.rollup_1m_packed
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog'
    SET plan_cache_mode TO 'force_custom_plan'
    AS $$
DECLARE
    p     plant.rollup_1m_packed;
    r     record;
    back  plant.rollup_1m[];
BEGIN
    p.day := day;
    p.channel_id := channel;
    WITH own AS MATERIALIZED (
        SELECT m.*, (date_part('epoch', m.bucket - day) / 60)::int AS minute,
               round(date_part('epoch', m.first_time - m.bucket) * 1e6)::int AS first_at,
               round(date_part('epoch', m.last_time - m.bucket) * 1e6)::int AS last_at
        FROM plant.rollup_1m AS m
        WHERE m.channel_id = channel AND m.bucket >= day AND m.bucket < day + INTERVAL '24 hours'
    ),
    -- What stands where there is no value: anything that makes the range no wider.
    filled AS (
        SELECT o.*, coalesce(o.min, w.low, 0) AS low, coalesce(o.max, w.low, 0) AS high,
               coalesce(o.first, w.low, 0) AS opening, coalesce(o.last, w.low, 0) AS closing
        FROM own AS o
        CROSS JOIN (SELECT min(o.min) AS low FROM own AS o) AS w
    )
    SELECT count(*)::int AS rows, array_agg(f.minute ORDER BY f.minute) AS minutes, array_agg(f.n ORDER BY f.minute) AS n,
           array_agg(f.n_good ORDER BY f.minute) AS n_good, array_agg(f.known::int ORDER BY f.minute) AS known,
           array_agg(f.first_at ORDER BY f.minute) AS first_at, array_agg(f.last_at ORDER BY f.minute) AS last_at,
           array_agg(f.holds::int ORDER BY f.minute) AS holds, array_agg(f.low ORDER BY f.minute) AS min,
           array_agg(f.high ORDER BY f.minute) AS max, array_agg(f.sum ORDER BY f.minute) AS sum,
           array_agg(f.area ORDER BY f.minute) AS area, array_agg(f.opening ORDER BY f.minute) AS first,
           array_agg(f.closing ORDER BY f.minute) AS last,
           array_agg(ROW(f.channel_id, f.n, f.bucket, f.min, f.max, f.sum, f.area, f.first, f.last, f.known,
                         f.first_time, f.last_time, f.n_good, f.holds)::plant.rollup_1m ORDER BY f.minute) AS own
    INTO r
    FROM filled AS f;
    IF r.rows = 0 THEN
        RETURN NULL;
    END IF;
    p.rows := r.rows;
    p.minute_ := CASE WHEN r.rows < 1440 THEN r.minutes END;
    p.n := r.n[1];
    p.n_ := nullif(r.n, array_fill(r.n[1], ARRAY[r.rows]));
    p.n_good := r.n_good[1];
    p.n_good_ := nullif(r.n_good, array_fill(r.n_good[1], ARRAY[r.rows]));
    p.known := r.known[1];
    p.known_ := nullif(r.known, array_fill(r.known[1], ARRAY[r.rows]));
    p.holds := r.holds[1];
    p.holds_ := nullif(r.holds, array_fill(r.holds[1], ARRAY[r.rows]));
    -- Where some are NULL no constant stands for them.
    IF r.first_at = array_fill(r.first_at[1], ARRAY[r.rows]) THEN
        p.first_at := r.first_at[1];
    ELSE
        p.first_at_ := r.first_at;
    END IF;
    IF r.last_at = array_fill(r.last_at[1], ARRAY[r.rows]) THEN
        p.last_at := r.last_at[1];
    ELSE
        p.last_at_ := r.last_at;
    END IF;
    p.min := plant.pack_numbers(r.min);
    p.max := plant.pack_numbers(r.max);
    p.sum := plant.pack_numbers(r.sum);
    p.area := plant.pack_numbers(r.area);
    p.first := plant.pack_numbers(r.first);
    p.last := plant.pack_numbers(r.last);
    back := ARRAY(SELECT u FROM plant.unpack_minutes(p, '-infinity', 'infinity') AS u);
    IF (SELECT one FROM (SELECT back) AS one) *<> (SELECT one FROM (SELECT r.own) AS one) THEN -- to the bit
        RAISE EXCEPTION 'rollups of channel % on the day from % do not come back from the packed form', channel, day;
    END IF;
    RETURN p;
END
$$;

CREATE FUNCTION plant.pack_numbers(numbers double precision[]) RETURNS plant.packed_numbers
    LANGUAGE plpgsql STABLE PARALLEL SAFE
    AS $$
DECLARE
    p plant.samples_packed;
BEGIN
    p.n := cardinality(numbers);
    p.start := 'epoch';
    p.step := 1;
    p.unit := 1;
    p := plant.pack_values(p, numbers);
    RETURN ROW(p.base, p.divisor, p.single, p.v0, p.v1, p.v2, p.v3, p.float4s, p.float8s)::plant.packed_numbers;
END
$$;

CREATE FUNCTION plant.pack_rollup_channels(of_day timestamp with time zone, ids integer[]) RETURNS boolean
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog'
    SET plan_cache_mode TO 'force_custom_plan'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
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

CREATE PROCEDURE plant.pack_rollups_before(IN t timestamp with time zone, IN portions integer DEFAULT NULL::integer)
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

COMMENT ON PROCEDURE plant.pack_rollups_before(IN t timestamp with time zone, IN portions integer) IS 'Pack the minutes of whole days before t. CALL it outside a transaction.';

CREATE FUNCTION plant.pack_times(INOUT p plant.samples_packed, times timestamp with time zone[]) RETURNS plant.samples_packed
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
    AS $$
DECLARE
    micro CONSTANT interval := INTERVAL '1 microsecond';
    last  CONSTANT float8 := round(date_part('epoch', times[p.n] - times[1]) * 1e6);
    since float8[]; -- µs since the first
    least float8;
    range float8;
    wide  int;
BEGIN
    p.start := times[1];
    p.unit := 1;
    p.step := CASE p.n WHEN 1 THEN 1000000 ELSE greatest(1, round(last / (p.n - 1))) END;
    IF times = ARRAY(SELECT generate_series(p.start, p.start + micro * (p.step * (p.n - 1)), micro * p.step)) THEN
        RETURN;
    END IF;
    since := ARRAY(SELECT round(date_part('epoch', u.t - times[1]) * 1e6) FROM unnest(times) AS u (t));
    -- Which straight line lies nearest to the times: of the mean step, or of the usual one, which a break or a late
    -- sample does not bend?
    WITH at AS (
        SELECT u.o - 1 AS i, u.since, u.since - lag(u.since) OVER (ORDER BY u.o) AS step
        FROM unnest(since) WITH ORDINALITY AS u (since, o)
    ),
    usual AS (
        SELECT percentile_disc(0.5) WITHIN GROUP (ORDER BY a.step) AS step,
               CASE WHEN bool_and(a.since / 1e6 = floor(a.since / 1e6)) THEN 1000000
                    WHEN bool_and(a.since / 1000 = floor(a.since / 1000)) THEN 1000 ELSE 1 END AS unit
        FROM at AS a
    ),
    candidate AS (
        SELECT DISTINCT u.unit, c.step
        FROM usual AS u
        CROSS JOIN LATERAL (VALUES (round(last / (p.n - 1) / u.unit) * u.unit), (u.step),
                                   (round(u.step / 1000) * 1000), (round(u.step / 10000) * 10000)) AS c (step)
        WHERE c.step >= u.unit AND c.step / u.unit = floor(c.step / u.unit)
    )
    SELECT c.unit, c.step, min(a.since - a.i * c.step), max(a.since - a.i * c.step) - min(a.since - a.i * c.step)
    INTO p.unit, p.step, least, range
    FROM candidate AS c
    CROSS JOIN at AS a
    GROUP BY c.unit, c.step
    ORDER BY 4, c.step
    LIMIT 1;
    wide := plant.planes(range / p.unit);
    since := ARRAY(SELECT (u.since - (u.o - 1) * p.step - least) / p.unit
                   FROM unnest(since) WITH ORDINALITY AS u (since, o));
    -- The least and the planes' middle go into the line's start.
    p.start := p.start + micro * (least + plant.planes_middle(wide) * p.unit);
    p.t0 := CASE WHEN wide > 0 THEN plant.plane(since, 0) END;
    p.t1 := CASE WHEN wide > 1 THEN plant.plane(since, 1) END;
    p.t2 := CASE WHEN wide > 2 THEN plant.plane(since, 2) END;
    p.t3 := CASE WHEN wide > 3 THEN plant.plane(since, 3) END;
END
$$;

CREATE FUNCTION plant.pack_values(INOUT p plant.samples_packed, "values" double precision[]) RETURNS plant.samples_packed
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
    AS $$
DECLARE
    few   CONSTANT int := p.n / 16; -- so many may stand in float8s beside the planes
    k     int;
    whole float8[]; -- whole numbers, NULL where there is none
    least float8;
    range float8;
    wide  int;
BEGIN
    p.base := 0;
    p.divisor := 1;
    p.single := false;
    k := (SELECT min(h.k) FROM (SELECT d.k, sum(count(*)) OVER (ORDER BY d.k) AS upto
                                FROM (SELECT plant.decimals(u.v) AS k FROM unnest("values") AS u (v)) AS d
                                WHERE d.k IS NOT NULL
                                GROUP BY d.k) AS h
          WHERE h.upto >= p.n - few);
    IF k IS NULL AND (SELECT count(*) FILTER (WHERE plant.is_float4(u.v)) >= p.n - few FROM unnest("values") AS u (v)) THEN
        p.single := true;
        k := (SELECT min(h.k) FROM (SELECT d.k, sum(count(*)) OVER (ORDER BY d.k) AS upto
                                    FROM (SELECT plant.decimals_of_float4(u.v) AS k
                                          FROM unnest("values") AS u (v)) AS d
                                    WHERE d.k IS NOT NULL
                                    GROUP BY d.k) AS h
              WHERE h.upto >= p.n - few);
    END IF;
    IF k IS NOT NULL THEN
        p.divisor := 10::float8 ^ k;
        whole := ARRAY(SELECT CASE WHEN CASE WHEN p.single THEN plant.decimals_of_float4(u.v) ELSE plant.decimals(u.v) END <= k
                                        AND abs(u.v) < 9e15 / p.divisor
                                   THEN round(u.v * p.divisor) END
                       FROM unnest("values") AS u (v));
        SELECT min(u.w), max(u.w) - min(u.w) INTO least, range FROM unnest(whole) AS u (w);
        wide := plant.planes(range);
        -- Sums of whole numbers below 2^53 are exact; the decoded value is compared below all the same.
        IF wide IS NULL OR (p.single AND wide > 2) THEN
            k := NULL;
        END IF;
    END IF;
    IF k IS NULL THEN
        p.divisor := 1;
        IF p.single THEN
            p.single := false;
            p.float4s := ARRAY(SELECT CASE WHEN plant.is_float4(u.v) THEN u.v::float4 END
                               FROM unnest("values") AS u (v));
        END IF;
    ELSE
        p.base := least + plant.planes_middle(wide);
        whole := ARRAY(SELECT u.w - least FROM unnest(whole) AS u (w));
        p.v0 := CASE WHEN wide > 0 THEN plant.plane(whole, 0) END;
        p.v1 := CASE WHEN wide > 1 THEN plant.plane(whole, 1) END;
        p.v2 := CASE WHEN wide > 2 THEN plant.plane(whole, 2) END;
        p.v3 := CASE WHEN wide > 3 THEN plant.plane(whole, 3) END;
    END IF;
    -- Whatever does not come back as it is stands in float8s.
    p.float8s := ARRAY(SELECT CASE WHEN NOT (u.v = u.back AND (u.v <> 0 OR float8send(u.v) = float8send(u.back)))
                                   THEN u.v END
                       FROM ROWS FROM (unnest("values"), plant.unpacked_values(p)) AS u (v, back));
    IF (SELECT bool_and(u.v IS NULL) FROM unnest(p.float8s) AS u (v)) THEN
        p.float8s := NULL;
    END IF;
END
$$;

CREATE FUNCTION plant.plane(numbers double precision[], place integer) RETURNS "char"[]
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN ARRAY(SELECT ((((((COALESCE(u.number, (0)::double precision))::bigint >> (8 * plane.place)) & (255)::bigint) - 128))::integer)::"char" AS "char" FROM unnest(plane.numbers) u(number));

CREATE FUNCTION plant.planes(range double precision) RETURNS integer
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN CASE WHEN (range = (0)::double precision) THEN 0 WHEN (range < (256)::double precision) THEN 1 WHEN (range < (65536)::double precision) THEN 2 WHEN (range < (16777216)::double precision) THEN 3 WHEN (range < ('4294967296'::bigint)::double precision) THEN 4 ELSE NULL::integer END;

CREATE FUNCTION plant.planes_middle(planes integer) RETURNS double precision
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN CASE planes WHEN 0 THEN (0)::bigint WHEN 1 THEN (128)::bigint WHEN 2 THEN (32896)::bigint WHEN 3 THEN (8421504)::bigint ELSE '2155905152'::bigint END;

CREATE FUNCTION plant.points_of(since timestamp with time zone, until timestamp with time zone, length double precision) RETURNS integer
    LANGUAGE sql IMMUTABLE
    AS $$
SELECT least(5000, greatest(1, ceil(extract(epoch FROM until - since) * 1000 / length)))::int
$$;

CREATE FUNCTION plant.priority_rank(priority text) RETURNS integer
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    RETURN array_position(ARRAY['critical'::text, 'high'::text, 'medium'::text, 'low'::text], priority);

COMMENT ON FUNCTION plant.priority_rank(priority text) IS '1: critical, to 4: low.';

CREATE FUNCTION plant.quality(status integer) RETURNS text
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    RETURN CASE ((status >> 30) & 3) WHEN 0 THEN 'good'::text WHEN 1 THEN 'uncertain'::text ELSE 'bad'::text END;

CREATE FUNCTION plant.reader_sessions() RETURNS TABLE(pid integer, active_since timestamp with time zone, idle_since timestamp with time zone, xact_start timestamp with time zone)
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'pg_catalog'
    AS $$
SELECT a.pid, CASE WHEN a.state = 'active' THEN a.query_start END,
       CASE WHEN a.state LIKE 'idle in transaction%' THEN a.state_change END, a.xact_start
FROM pg_stat_activity AS a
WHERE a.datname = current_database() AND a.leader_pid IS NULL AND a.pid <> pg_backend_pid()
  AND pg_has_role(a.usesysid, 'plant_reader', 'MEMBER')
  AND NOT pg_has_role(a.usesysid, 'plant_ingest', 'MEMBER') AND NOT pg_has_role(a.usesysid, 'plant_owner', 'MEMBER')
$$;

COMMENT ON FUNCTION plant.reader_sessions() IS 'Sessions of readers: since when a statement goes on, or a transaction waits for its next one.';

CREATE FUNCTION plant.record_overload(at timestamp with time zone, said text, detail jsonb) RETURNS void
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'pg_catalog'
    AS $$
INSERT INTO plant.event (time, id, type, text, detail)
SELECT at, hashtextextended(concat_ws(' ', at, said, detail), 11) & 9223372036854775807, 'overload', said, detail
ON CONFLICT (time, id) DO NOTHING
$$;

COMMENT ON FUNCTION plant.record_overload(at timestamp with time zone, said text, detail jsonb) IS 'Puts an event of type overload on record: when it began (overloaded) or ended (good), with its figures.';

CREATE FUNCTION plant.record_retention(said text, detail jsonb) RETURNS void
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'pg_catalog'
    AS $$
INSERT INTO plant.event (time, id, type, text, detail)
SELECT t.at, hashtextextended(concat_ws(' ', t.at, said, detail), 11) & 9223372036854775807, 'retention', said, detail
FROM (SELECT clock_timestamp() AS at) AS t
ON CONFLICT (time, id) DO NOTHING
$$;

CREATE FUNCTION plant.refresh_closed(closed timestamp with time zone) RETURNS boolean
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog'
    AS $$
BEGIN
    -- Not with a snapshot from before a minute was closed: that is a serialization failure.
    PERFORM FROM plant.rollup_closed AS c FOR UPDATE NOWAIT;
    RETURN plant.refresh_portion(least(closed, plant.first_open()));
EXCEPTION WHEN serialization_failure OR lock_not_available THEN
    RETURN NULL;
END
$$;

CREATE FUNCTION plant.refresh_hour(hour timestamp with time zone) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog'
    SET plan_cache_mode TO 'force_custom_plan'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
DECLARE
    whole    boolean;
    ids      int[];
    discrete int[];
BEGIN
    WITH taken AS (
        DELETE FROM plant.rollup_dirty AS d WHERE d.hours AND d.from_time = hour AND d.to_time = hour + INTERVAL '1 hour'
        RETURNING d.channels
    )
    SELECT bool_or(t.channels IS NULL), array_agg(DISTINCT c.id) FILTER (WHERE c.id IS NOT NULL)
    INTO whole, ids
    FROM taken AS t
    LEFT JOIN LATERAL unnest(t.channels) AS c (id) ON true;
    IF whole THEN
        ids := plant.rollup_channels(ids);
    END IF;
    ids := plant.not_dropped(ids, '1m', hour);
    WITH fresh AS MATERIALIZED (
        SELECT m AS line, m.channel_id FROM plant.hours_of(ids, hour) AS m
    ),
    removed AS (
        DELETE FROM plant.rollup_1h AS r
        WHERE r.channel_id = ANY (ids) AND r.bucket = hour
          AND NOT EXISTS (SELECT FROM fresh AS f WHERE f.channel_id = r.channel_id)
    )
    INSERT INTO plant.rollup_1h SELECT (f.line).* FROM fresh AS f
    ON CONFLICT (channel_id, bucket) DO UPDATE
    SET n = excluded.n, min = excluded.min, max = excluded.max, sum = excluded.sum, area = excluded.area,
        first = excluded.first, last = excluded.last, known = excluded.known, first_time = excluded.first_time,
        last_time = excluded.last_time, n_good = excluded.n_good, holds = excluded.holds;
    discrete := ARRAY(SELECT c.id FROM plant.channel AS c WHERE c.kind = 'discrete' AND c.id = ANY (ids));
    IF discrete <> '{}' THEN
        DELETE FROM plant.rollup_states_1h AS r WHERE r.channel_id = ANY (discrete) AND r.bucket = hour;
        INSERT INTO plant.rollup_states_1h SELECT s.* FROM plant.state_hours_of(discrete, hour) AS s;
    END IF;
END
$$;

CREATE FUNCTION plant.refresh_minutes(ids integer[], everyone integer[], "from" timestamp with time zone, "to" timestamp with time zone) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog'
    SET plan_cache_mode TO 'force_custom_plan'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
DECLARE
    others   CONSTANT int[] := ARRAY(SELECT e.id FROM unnest(everyone) AS e (id) EXCEPT SELECT i.id FROM unnest(ids) AS i (id));
    whole    CONSTANT boolean := everyone IS NOT NULL AND others = '{}';
    discrete int[] := ARRAY(SELECT c.id FROM plant.channel AS c WHERE c.kind = 'discrete' AND c.id = ANY (ids));
    of_day   CONSTANT timestamptz := plant.day_of("from");
    forced   int[];
    gone_ids     int[];
    gone_buckets timestamptz[];
BEGIN
    WITH taken AS (
        DELETE FROM plant.rollup_dirty AS d
        WHERE d.from_time < "to" AND d.to_time > "from" AND NOT d.hours
          AND (d.channels && ids OR d.channels IS NULL AND everyone IS NOT NULL)
        RETURNING d.from_time, d.to_time, d.channels, d.onward
    ),
    rest AS (
        INSERT INTO plant.rollup_dirty (from_time, to_time, channels, onward)
        SELECT t.from_time, "from", t.channels, t.onward FROM taken AS t WHERE t.from_time < "from"
        UNION ALL
        SELECT "to", t.to_time, t.channels, t.onward FROM taken AS t WHERE t.to_time > "to"
        UNION ALL
        SELECT greatest(t.from_time, "from"), least(t.to_time, "to"), r.others, t.onward
        FROM taken AS t
        CROSS JOIN LATERAL (
            SELECT CASE WHEN t.channels IS NULL THEN others
                        WHEN t.channels <@ ids THEN '{}'
                        ELSE ARRAY(SELECT c.id FROM unnest(t.channels) AS c (id)
                                   EXCEPT SELECT i.id FROM unnest(ids) AS i (id)) END AS others
        ) AS r
        WHERE r.others <> '{}'
    ),
    onward AS (
        SELECT c.id, plant.hour_of(greatest(t.from_time, "from")) AS hour
        FROM taken AS t
        CROSS JOIN unnest(t.channels) AS c (id)
        WHERE t.onward AND c.id = ANY (ids)
    ),
    hours AS (
        INSERT INTO plant.rollup_dirty (from_time, to_time, channels, hours)
        SELECT o.hour, o.hour + INTERVAL '1 hour', array_agg(DISTINCT o.id), true FROM onward AS o GROUP BY o.hour
    )
    SELECT array_agg(DISTINCT o.id) INTO forced FROM onward AS o;
    -- Where retention took raw data, minutes can't be made anew: they stay as they are. So do hours without their minutes.
    ids := plant.not_dropped(ids, 'raw', "from");
    discrete := ARRAY(SELECT i.id FROM unnest(ids) AS i (id) INTERSECT SELECT c.id FROM unnest(discrete) AS c (id));
    IF ids = '{}' THEN
        RETURN;
    END IF;
    -- Packed days become rows again.
    WITH unpacked AS (
        DELETE FROM plant.rollup_1m_packed AS p
        WHERE p.day = of_day AND p.channel_id = ANY (ids)
        RETURNING p
    )
    INSERT INTO plant.rollup_1m
    SELECT u.* FROM unpacked CROSS JOIN LATERAL plant.unpack_minutes(unpacked.p, '-infinity', 'infinity') AS u;

    WITH fresh AS MATERIALIZED (
        SELECT m AS line, m.channel_id, m.bucket FROM plant.minutes_of(ids, "from", "to") AS m
    ),
    old AS MATERIALIZED (
        SELECT r AS line, r.channel_id, r.bucket
        FROM unnest(ids) AS c (id)
        CROSS JOIN LATERAL (SELECT o.* FROM plant.rollup_1m AS o
                            WHERE o.channel_id = c.id AND o.bucket >= "from" AND o.bucket < "to" OFFSET 0) AS r
    ),
    gone AS (
        SELECT o.channel_id, o.bucket
        FROM old AS o
        WHERE NOT EXISTS (SELECT FROM fresh AS f WHERE f.channel_id = o.channel_id AND f.bucket = o.bucket)
    ),
    new AS (
        SELECT f.line, f.channel_id, f.bucket
        FROM fresh AS f
        LEFT JOIN old AS o ON o.channel_id = f.channel_id AND o.bucket = f.bucket
        WHERE o.line IS NULL OR o.line *<> f.line
    ),
    put AS (
        INSERT INTO plant.rollup_1m SELECT (n.line).* FROM new AS n
        ON CONFLICT (channel_id, bucket) DO UPDATE
        SET n = excluded.n, min = excluded.min, max = excluded.max, sum = excluded.sum, area = excluded.area,
            first = excluded.first, last = excluded.last, known = excluded.known, first_time = excluded.first_time,
            last_time = excluded.last_time, n_good = excluded.n_good, holds = excluded.holds
    ),
    -- What each channel carries out of here: where it is something else than before, the next minute is to be made anew.
    carried AS (
        SELECT coalesce(f.channel_id, o.channel_id) AS channel_id
        FROM (SELECT DISTINCT ON (f.channel_id) f.channel_id, f.line FROM fresh AS f ORDER BY f.channel_id, f.bucket DESC) AS f
        FULL JOIN (SELECT DISTINCT ON (o.channel_id) o.channel_id, o.line FROM old AS o ORDER BY o.channel_id, o.bucket DESC) AS o
            ON o.channel_id = f.channel_id
        WHERE float8send((f.line).last) IS DISTINCT FROM float8send((o.line).last)
           OR (f.line).last_time IS DISTINCT FROM (o.line).last_time OR (f.line).holds IS DISTINCT FROM (o.line).holds
        UNION
        SELECT c.id FROM unnest(forced) AS c (id)
    ),
    next AS MATERIALIZED (
        SELECT a.bucket, array_agg(c.channel_id) AS channels
        FROM carried AS c
        CROSS JOIN LATERAL plant.minute_after(c.channel_id, "to") AS a
        GROUP BY a.bucket
    ),
    hours AS (
        SELECT plant.hour_of(m.bucket) AS hour, array_agg(DISTINCT m.channel_id) AS channels
        FROM (
            SELECT n.channel_id, n.bucket FROM new AS n
            UNION ALL
            SELECT g.channel_id, g.bucket FROM gone AS g
            UNION ALL
            -- An hour depends on what is carried into its first minute, though that may be the same itself.
            SELECT f.channel_id, f.bucket FROM fresh AS f WHERE NOT whole OR f.channel_id = ANY (discrete)
        ) AS m
        GROUP BY plant.hour_of(m.bucket)
        UNION ALL
        SELECT plant.hour_of(n.bucket), n.channels FROM next AS n
    ),
    marked AS (
        INSERT INTO plant.rollup_dirty (from_time, to_time, channels, hours)
        SELECT n.bucket, n.bucket + INTERVAL '1 minute', n.channels, false FROM next AS n
        UNION ALL
        SELECT h.hour, h.hour + INTERVAL '1 hour', CASE WHEN NOT whole OR cardinality(h.channels) <= 500 THEN h.channels END, true
        FROM hours AS h
    )
    SELECT array_agg(g.channel_id), array_agg(g.bucket) INTO gone_ids, gone_buckets FROM gone AS g;

    IF gone_ids IS NOT NULL THEN
        DELETE FROM plant.rollup_1m AS r USING unnest(gone_ids, gone_buckets) AS g (channel_id, bucket)
        WHERE r.channel_id = g.channel_id AND r.bucket = g.bucket AND r.bucket >= "from" AND r.bucket < "to";
    END IF;
    IF discrete <> '{}' THEN
        IF EXISTS (SELECT FROM plant.rollup_states_1m AS r
                   WHERE r.channel_id = ANY (discrete) AND r.bucket >= "from" AND r.bucket < "to") THEN
            DELETE FROM plant.rollup_states_1m AS r
            WHERE r.channel_id = ANY (discrete) AND r.bucket >= "from" AND r.bucket < "to";
        END IF;
        INSERT INTO plant.rollup_states_1m SELECT s.* FROM plant.state_minutes_of(discrete, "from", "to") AS s;
    END IF;
END
$$;

CREATE FUNCTION plant.refresh_portion(closed timestamp with time zone) RETURNS boolean
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog'
    SET plan_cache_mode TO 'force_custom_plan'
    AS $$
DECLARE
    budget CONSTANT int := 20000; -- minutes of channels
    packed CONSTANT int := 50;    -- channels whose packed day becomes rows at once
    apart  CONSTANT int := 200;   -- minutes of channels that cost as much as a portion of their own
    minute   timestamptz; -- the newest dirty one, to be made from samples
    hour     timestamptz; -- to be made from minutes
    unit     tstzrange;
    row      record;
    area     float8 := 0; -- of what is dirty, in minutes of channels
    ids      int[];
    more     int[];
    everyone int[];
    "from"   timestamptz;
    "to"     timestamptz;
BEGIN
    IF NOT pg_try_advisory_xact_lock(7361023400154) THEN
        RETURN NULL;
    END IF;
    minute := (SELECT least(d.to_time, closed) - INTERVAL '1 minute'
               FROM plant.rollup_dirty AS d
               WHERE NOT d.hours AND d.from_time < closed
               ORDER BY d.to_time DESC LIMIT 1);
    hour := (SELECT d.from_time
             FROM plant.rollup_dirty AS d
             WHERE d.hours AND d.to_time <= closed
             ORDER BY d.to_time DESC LIMIT 1);
    IF hour - plant.hold_limit() > minute OR minute IS NULL AND hour IS NOT NULL THEN
        PERFORM plant.refresh_hour(hour);
        RETURN true;
    ELSIF minute IS NULL THEN
        RETURN false;
    END IF;
    -- The first minutes of the newest hour that are dirty of any channel, and who else is dirty in them.
    WITH dirty AS MATERIALIZED (
        SELECT greatest(d.from_time, plant.hour_of(minute)) AS from_time,
               least(d.to_time, closed, plant.hour_of(minute) + INTERVAL '1 hour') AS to_time, d.channels
        FROM plant.rollup_dirty AS d
        WHERE NOT d.hours AND d.to_time > plant.hour_of(minute)
          AND d.from_time < least(closed, plant.hour_of(minute) + INTERVAL '1 hour')
    ),
    range AS (
        SELECT lower(r) AS from_time, upper(r) AS to_time
        FROM (SELECT range_agg(tstzrange(d.from_time, d.to_time)) AS ranges FROM dirty AS d WHERE d.channels IS NULL) AS a
        CROSS JOIN unnest(a.ranges) AS r
        ORDER BY 1 LIMIT 1
    )
    SELECT r.from_time, r.to_time,
           plant.rollup_channels(ARRAY(SELECT c.id FROM dirty AS d CROSS JOIN unnest(d.channels) AS c (id)
                                       WHERE d.to_time > r.from_time AND d.from_time < r.to_time))
    INTO "from", "to", everyone
    FROM range AS r;
    ids := everyone;
    -- Else what is dirty first on its day, or where that has more than a portion in its hour.
    IF everyone IS NULL THEN
        unit := tstzrange(plant.day_of(minute), plant.day_of(minute) + INTERVAL '24 hours');
        IF budget < (SELECT sum(cardinality(d.channels)
                                * date_part('epoch', least(d.to_time, closed, upper(unit)) - greatest(d.from_time, lower(unit))) / 60)
                     FROM plant.rollup_dirty AS d
                     WHERE NOT d.hours AND d.to_time > lower(unit) AND d.from_time < least(closed, upper(unit)) AND d.channels IS NOT NULL) THEN
            unit := tstzrange(plant.hour_of(minute), plant.hour_of(minute) + INTERVAL '1 hour');
        END IF;
        FOR row IN
            SELECT greatest(d.from_time, lower(unit)) AS from_time, least(d.to_time, closed, upper(unit)) AS to_time, d.channels
            FROM plant.rollup_dirty AS d
            WHERE NOT d.hours AND d.to_time > lower(unit) AND d.from_time < least(closed, upper(unit)) AND d.channels IS NOT NULL
            ORDER BY 1, 2
        LOOP
            area := area + cardinality(row.channels) * date_part('epoch', row.to_time - row.from_time) / 60;
            more := CASE WHEN row.channels <@ ids THEN ids
                         ELSE ARRAY(SELECT c.id FROM unnest(ids) AS c (id) UNION SELECT c.id FROM unnest(row.channels) AS c (id)) END;
            EXIT WHEN ids IS NOT NULL
                AND cardinality(more) * date_part('epoch', greatest("to", row.to_time) - "from") / 60 > least(budget, 2 * area + apart);
            ids := more;
            "from" := coalesce("from", row.from_time);
            "to" := greatest("to", row.to_time);
        END LOOP;
    END IF;
    IF cardinality(ids) > packed
       AND EXISTS (SELECT FROM plant.rollup_1m_packed AS p WHERE p.day = plant.day_of(minute) AND p.channel_id = ANY (ids)) THEN
        ids := ids[1:packed];
    END IF;
    "to" := least("to", "from" + INTERVAL '1 minute' * greatest(1, budget / greatest(1, cardinality(ids))));
    PERFORM plant.refresh_minutes(ids, everyone, "from", "to");
    RETURN true;
EXCEPTION WHEN serialization_failure OR unique_violation THEN
    RETURN NULL; -- another session ended what it was at between our snapshot and our lock
END
$$;

CREATE PROCEDURE plant.refresh_rollups()
    LANGUAGE plpgsql
    AS $$
DECLARE
    grace CONSTANT interval := INTERVAL '10 seconds'; -- a minute's last samples are on their way
    lateness interval;
    done     boolean;
BEGIN
    LOOP
        COMMIT;
        SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; -- before anything takes a snapshot
        done := plant.refresh_closed(plant.minute_of(clock_timestamp() - grace));
        EXIT WHEN done IS NOT TRUE;
    END LOOP;
    COMMIT;
    IF NOT done THEN
        lateness := INTERVAL '1 second' * coalesce((SELECT s.value::float8 FROM plant.setting AS s WHERE s.key = 'lateness'),
                                                   86400);
        CALL plant.pack_rollups_before(clock_timestamp() - lateness, 1);
    END IF;
END
$$;

COMMENT ON PROCEDURE plant.refresh_rollups() IS 'Make the rollups of all closed minutes and hours that are dirty, newest first, in small transactions. CALL it outside a transaction.';

CREATE FUNCTION plant.refuse_change() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    RAISE EXCEPTION '% on plant.% is refused: seals are only added to', TG_OP, TG_TABLE_NAME
        USING ERRCODE = 'restrict_violation';
END
$$;

CREATE FUNCTION plant.replayed_signals(since timestamp with time zone, until timestamp with time zone, channels text[] DEFAULT NULL::text[], samples integer DEFAULT 60, tolerance double precision DEFAULT 0.05, lookback interval DEFAULT '01:00:00'::interval) RETURNS TABLE(channel text, copy_from timestamp with time zone, copy_to timestamp with time zone, original_from timestamp with time zone, original_to timestamp with time zone, copied bigint, what text, scale double precision, "offset" double precision, largest_difference double precision)
    LANGUAGE sql STABLE
    AS $$
WITH
wanted AS (
    SELECT c.channel_id, c.name FROM plant.channels_like(channels) AS c WHERE c.kind = 'analog'
),
-- Positions count through all channels: one key finds a sample.
readings AS MATERIALIZED (
    SELECT w.channel_id, s.time, s.value, row_number() OVER (ORDER BY w.channel_id, s.time) AS position,
           s.value - lag(s.value) OVER per_channel AS step
    FROM wanted AS w
    CROSS JOIN LATERAL plant.good_samples(w.channel_id, since - lookback, until) AS s
    WINDOW per_channel AS (PARTITION BY w.channel_id ORDER BY s.time)
),
ratios AS (
    SELECT r.channel_id, r.time, r.position, r.step, r.step / nullif(lag(r.step) OVER per_channel, 0) AS ratio
    FROM readings AS r
    WINDOW per_channel AS (PARTITION BY r.channel_id ORDER BY r.position)
),
-- The logarithm is rounded coarsely, so that the last bits of a scaled copy don't matter.
hashes AS (
    SELECT r.channel_id, r.time, r.position, (r.step <> 0)::int AS changed,
           CASE WHEN r.ratio IS NULL OR r.ratio = 0 THEN coalesce(sign(r.step) ^ 2, 0)::bigint
                ELSE hashint8extended(round(8 * ln(abs(r.ratio)))::bigint, CASE WHEN r.ratio > 0 THEN 17 ELSE 42 END)
                     % 1000000007 -- so that sums stay small
           END AS hash
    FROM ratios AS r
),
windows AS (
    SELECT h.channel_id, h.time, h.position, sum(h.hash) OVER last_16 AS hash, sum(h.changed) OVER last_16 AS changed,
           count(*) OVER last_16 AS n
    FROM hashes AS h
    WINDOW last_16 AS (PARTITION BY h.channel_id ORDER BY h.position ROWS BETWEEN 15 PRECEDING AND CURRENT ROW)
),
-- The latest earlier window of the same hash that does not overlap.
repeated AS (
    SELECT w.channel_id, w.time, w.position,
           w.position - max(w.position) OVER (PARTITION BY w.channel_id, w.hash ORDER BY w.position
                                              RANGE BETWEEN UNBOUNDED PRECEDING AND 16 PRECEDING) AS distance
    FROM windows AS w
    WHERE w.n = 16 AND w.changed >= 12
),
breaks AS (
    SELECT r.channel_id, r.distance, r.position,
           r.position - lag(r.position) OVER same_distance > 48 AS apart
    FROM repeated AS r
    WHERE r.distance IS NOT NULL AND r.time >= since
    WINDOW same_distance AS (PARTITION BY r.channel_id, r.distance ORDER BY r.position)
),
numbered AS (
    SELECT b.*, count(*) FILTER (WHERE b.apart) OVER same_distance AS stretch
    FROM breaks AS b
    WINDOW same_distance AS (PARTITION BY b.channel_id, b.distance ORDER BY b.position)
),
stretches AS (
    -- The hash of a window's first two samples depends on samples before it.
    SELECT n.channel_id, n.distance, n.stretch, min(n.position) - 15 AS first, max(n.position) AS last
    FROM numbered AS n
    GROUP BY n.channel_id, n.distance, n.stretch
    HAVING max(n.position) - min(n.position) + 16 >= samples
),
-- With the original's position as a column: the join to it is one of a plain key, however few rows are expected.
copies AS MATERIALIZED (
    SELECT t.channel_id, t.distance, t.stretch, r.position, r.position - t.distance AS old_position, r.time,
           r.value, r.step
    FROM stretches AS t
    JOIN readings AS r ON r.channel_id = t.channel_id AND r.position BETWEEN t.first AND t.last
),
pairs AS MATERIALIZED (
    SELECT c.channel_id, c.distance, c.stretch, c.time, c.value, c.step, o.time AS old_time, o.value AS old_value,
           sign(c.step) * sign(lag(c.step) OVER stretch) < 0 AS turns
    FROM copies AS c
    JOIN readings AS o ON o.position = c.old_position
    WINDOW stretch AS (PARTITION BY c.channel_id, c.distance, c.stretch ORDER BY c.position)
),
fits AS (
    SELECT p.channel_id, p.distance, p.stretch, regr_slope(p.value, p.old_value) AS scale,
           regr_intercept(p.value, p.old_value) AS shift,
           percentile_cont(0.5) WITHIN GROUP (ORDER BY abs(p.step)) AS usual_step,
           count(*) FILTER (WHERE p.value <> p.old_value) AS unequal, count(*) FILTER (WHERE p.step <> 0) AS changed,
           count(*) FILTER (WHERE p.turns) AS turns, count(*) AS n
    FROM pairs AS p
    GROUP BY p.channel_id, p.distance, p.stretch
),
verified AS (
    SELECT f.channel_id, f.distance, f.stretch, f.n, f.changed, f.turns, f.unequal, f.usual_step,
           CASE WHEN f.unequal = 0 THEN 1 ELSE f.scale END AS scale,
           CASE WHEN f.unequal = 0 THEN 0 ELSE f.shift END AS shift,
           min(p.time) AS copy_from, max(p.time) AS copy_to, min(p.old_time) AS old_from, max(p.old_time) AS old_to,
           max(CASE WHEN f.unequal = 0 THEN 0 ELSE abs(p.value - f.scale * p.old_value - f.shift) END) AS difference
    FROM fits AS f
    JOIN pairs AS p ON p.channel_id = f.channel_id AND p.distance = f.distance AND p.stretch = f.stretch
    GROUP BY f.channel_id, f.distance, f.stretch, f.n, f.changed, f.turns, f.unequal, f.usual_step, f.scale, f.shift
)
SELECT w.name, v.copy_from, v.copy_to, v.old_from, v.old_to, v.n,
       CASE WHEN v.unequal = 0 THEN 'exact' ELSE 'scaled' END, v.scale, v.shift, v.difference
FROM verified AS v
JOIN wanted AS w ON w.channel_id = v.channel_id
WHERE v.changed >= samples AND v.changed * 2 >= v.n
  AND (v.unequal = 0 OR (v.difference <= tolerance * v.usual_step AND v.turns * 8 >= v.n))
ORDER BY v.n DESC, w.name, v.copy_from
$$;

CREATE FUNCTION plant.resampled(patterns text[], since timestamp with time zone, until timestamp with time zone, step interval, carry interval DEFAULT '01:00:00'::interval) RETURNS TABLE(channel_id integer, bucket timestamp with time zone, value double precision)
    LANGUAGE sql STABLE
    AS $$
WITH
wanted AS (
    SELECT c.channel_id, c.ends FROM plant.channels_like(patterns) AS c WHERE c.kind <> 'text'
),
got AS (
    SELECT w.channel_id, date_bin(step, s.time, since) AS bucket, avg(s.value) AS mean,
           public.last(s.value, s.time) AS last
    FROM wanted AS w
    CROSS JOIN LATERAL plant.good_samples(w.channel_id, since - carry, until) AS s
    GROUP BY w.channel_id, date_bin(step, s.time, since)
),
grid AS (
    SELECT w.channel_id, g.bucket
    FROM wanted AS w
    CROSS JOIN generate_series(since, least(until, now(), w.ends) - INTERVAL '1 microsecond', step) AS g (bucket)
),
-- Each bucket with samples begins a block, which lasts up to the next one.
blocks AS (
    SELECT channel_id, bucket, o.mean, o.last, count(o.last) OVER (PARTITION BY channel_id ORDER BY bucket) AS block
    FROM grid AS g
    FULL JOIN got AS o USING (channel_id, bucket)
),
carried AS (
    SELECT b.channel_id, b.bucket, b.mean,
           first_value(b.last) OVER (PARTITION BY b.channel_id, b.block ORDER BY b.bucket) AS held
    FROM blocks AS b
),
missing AS (
    SELECT g.channel_id, g.from_time, coalesce(g.to_time, 'infinity') AS to_time
    FROM plant.gap_channel AS g
    WHERE g.from_time < until AND coalesce(g.to_time, 'infinity') > since AND g.backfilled_at IS NULL
)
SELECT c.channel_id, c.bucket, coalesce(c.mean, c.held)
FROM carried AS c
WHERE c.bucket >= since AND c.held IS NOT NULL
  AND (c.mean IS NOT NULL
       OR NOT EXISTS (SELECT FROM missing AS m
                      WHERE m.channel_id = c.channel_id AND m.from_time <= c.bucket AND m.to_time >= c.bucket + step))
$$;

CREATE FUNCTION plant.retained(what text) RETURNS TABLE(relation regclass, column_name name)
    LANGUAGE sql STABLE
    SET search_path TO 'pg_catalog'
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

CREATE FUNCTION plant.retention_due() RETURNS TABLE(what text, relation regclass, from_time timestamp with time zone, to_time timestamp with time zone, classes text[])
    LANGUAGE sql STABLE
    SET search_path TO 'pg_catalog'
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

CREATE FUNCTION plant.retention_units(what text) RETURNS TABLE(relation regclass, column_name name, chunk regclass, from_time timestamp with time zone, to_time timestamp with time zone, bytes bigint)
    LANGUAGE sql STABLE
    SET search_path TO 'pg_catalog'
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

CREATE FUNCTION plant.rollup_channels(others integer[]) RETURNS integer[]
    LANGUAGE sql STABLE
    RETURN ARRAY(SELECT c.id FROM plant.channel c WHERE (c.kind <> 'text'::text) UNION SELECT o.id FROM unnest(rollup_channels.others) o(id) ORDER BY 1);

CREATE FUNCTION plant.rollup_mean(sum double precision, weight double precision, min double precision, max double precision) RETURNS double precision
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN CASE WHEN ((weight > (0)::double precision) AND (min >= ('-10000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000'::numeric)::double precision) AND (max <= ('10000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000'::numeric)::double precision)) THEN (sum / weight) ELSE NULL::double precision END;

CREATE FUNCTION plant.rollup_weight(value double precision) RETURNS double precision
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN CASE WHEN ((abs(value) >= (0.0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000001)::double precision) AND (abs(value) <= ('10000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000'::numeric)::double precision)) THEN value WHEN (value IS NOT NULL) THEN (0)::double precision ELSE NULL::double precision END;

CREATE FUNCTION plant.samples_between("from" timestamp with time zone, "to" timestamp with time zone) RETURNS TABLE("time" timestamp with time zone, channel_id integer, value double precision, status integer)
    LANGUAGE sql STABLE PARALLEL SAFE
    BEGIN ATOMIC
 SELECT r."time",
     r.channel_id,
     r.value,
     r.status
    FROM plant.samples_raw r
   WHERE ((r."time" >= samples_between."from") AND (r."time" < samples_between."to") AND ((r."time" >= ( SELECT u.until
            FROM plant.packed_until u)) OR (NOT (date_trunc('day'::text, r."time", 'UTC'::text) IN ( SELECT d.day
            FROM plant._packed_days() d(day)))) OR (NOT plant.is_packed(r.channel_id, r."time"))))
 UNION ALL
  SELECT u."time",
     p.channel_id,
     u.value,
     u.status
    FROM (plant.samples_packed p
      CROSS JOIN LATERAL plant.unpack(p.*, samples_between."from", samples_between."to") u("time", value, status))
   WHERE ((p.hour >= plant.hour_of(samples_between."from")) AND (p.hour < samples_between."to"));
END;

COMMENT ON FUNCTION plant.samples_between("from" timestamp with time zone, "to" timestamp with time zone) IS 'Samples of all channels with from <= time < to, each once; reads only the hours within the bounds.';

CREATE FUNCTION plant.series(channel integer, "from" timestamp with time zone, "to" timestamp with time zone, points integer DEFAULT 1000) RETURNS TABLE("time" timestamp with time zone, min double precision, avg double precision, max double precision, n bigint, n_good bigint, first double precision, last double precision, source text)
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog'
    SET plan_cache_mode TO 'force_custom_plan'
    SET jit TO 'off'
    SET max_parallel_workers_per_gather TO '0'
    AS $$
DECLARE
    most_samples CONSTANT int := 150000; -- that a chart may read; of coarser ones as many
    epoch CONSTANT timestamptz := '2000-01-01 00:00:00+00';
    width interval;
    rate  float8; -- samples a second
    dirty_minutes tstzmultirange;
    dirty_hours   tstzmultirange;
    hours   tstzmultirange := '{}';
    minutes tstzmultirange := '{}';
    r     tstzrange;
    of_hours   plant.series_part[] := '{}';
    of_minutes plant.series_part[] := '{}';
    of_samples plant.series_part[] := '{}';
BEGIN
    IF points IS NULL OR points < 1 OR "from" IS NULL OR "to" IS NULL OR NOT isfinite("from") OR NOT isfinite("to") THEN
        RAISE EXCEPTION 'series: from % to % in % points', "from", "to", points
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Bounds are finite times, points is at least 1.';
    ELSIF "from" >= "to" THEN
        RETURN;
    END IF;
    width := plant.series_width("to" - "from", points);
    IF width < INTERVAL '1 minute' THEN
        rate := (SELECT h.n / 3600.0 FROM plant.rollup_1h AS h
                 WHERE h.channel_id = channel AND h.bucket < "to" AND h.bucket > "from" - INTERVAL '1 hour'
                 ORDER BY h.bucket DESC LIMIT 1);
        IF rate * date_part('epoch', "to" - "from") > most_samples THEN
            width := INTERVAL '1 minute';
        END IF;
    ELSIF width < INTERVAL '1 hour' AND date_part('epoch', "to" - "from") / 60 > most_samples THEN
        width := INTERVAL '1 hour';
    END IF;
    IF width >= INTERVAL '1 minute' THEN
        SELECT range_agg(tstzrange(d.from_time, d.to_time)) FILTER (WHERE NOT d.hours),
               range_agg(tstzrange(d.from_time, d.to_time)) FILTER (WHERE d.hours)
        INTO dirty_minutes, dirty_hours
        FROM plant.rollup_dirty AS d
        WHERE d.to_time > "from" AND d.from_time < "to" AND (d.channels IS NULL OR channel = ANY (d.channels));
        dirty_minutes := coalesce(dirty_minutes, '{}');
        IF (SELECT count(*) FROM unnest(dirty_minutes)) > 20 THEN
            dirty_minutes := plant.widened(dirty_minutes, INTERVAL '1 hour');
        END IF;
        IF width >= INTERVAL '1 hour' THEN
            hours := plant.whole_buckets(tstzrange("from", "to"), INTERVAL '1 hour')
                     - plant.widened(dirty_minutes, INTERVAL '1 hour') - coalesce(dirty_hours, '{}');
        END IF;
        minutes := plant.whole_buckets(tstzrange("from", "to"), INTERVAL '1 minute') - dirty_minutes - hours;
    END IF;
    FOR r IN SELECT u FROM unnest(hours) AS u LOOP
        of_hours := of_hours || ARRAY(
            SELECT ROW(date_bin(width, h.bucket, epoch), min(h.bucket), sum(h.n), sum(h.n_good), min(h.min), max(h.max),
                       sum(h.sum ORDER BY h.bucket), (array_agg(h.first ORDER BY h.bucket) FILTER (WHERE h.n_good > 0))[1],
                       (array_agg(h.last ORDER BY h.bucket DESC) FILTER (WHERE h.n_good > 0))[1])::plant.series_part
            FROM plant.rollup_1h AS h
            WHERE h.channel_id = channel AND h.bucket >= lower(r) AND h.bucket < upper(r)
            GROUP BY date_bin(width, h.bucket, epoch));
    END LOOP;
    FOR r IN SELECT u FROM unnest(minutes) AS u LOOP
        of_minutes := of_minutes || ARRAY(
            SELECT ROW(date_bin(width, m.bucket, epoch), min(m.bucket), sum(m.n), sum(m.n_good), min(m.min), max(m.max),
                       sum(m.sum ORDER BY m.bucket), (array_agg(m.first ORDER BY m.bucket) FILTER (WHERE m.n_good > 0))[1],
                       (array_agg(m.last ORDER BY m.bucket DESC) FILTER (WHERE m.n_good > 0))[1])::plant.series_part
            FROM plant.minutes_between(ARRAY[channel], lower(r), upper(r)) AS m
            GROUP BY date_bin(width, m.bucket, epoch));
    END LOOP;
    FOR r IN SELECT u FROM unnest(tstzmultirange(tstzrange("from", "to")) - hours - minutes) AS u LOOP
        of_samples := of_samples || ARRAY(
            SELECT ROW(date_bin(width, s.time, epoch), min(s.time), count(*), count(s.good), min(s.good), max(s.good),
                       coalesce(sum(plant.rollup_weight(s.good) ORDER BY s.time), 0),
                       (array_agg(s.good ORDER BY s.time) FILTER (WHERE s.good IS NOT NULL))[1],
                       (array_agg(s.good ORDER BY s.time DESC) FILTER (WHERE s.good IS NOT NULL))[1])::plant.series_part
            FROM (SELECT b.time, CASE WHEN b.status >= 0 AND b.value <> 'NaN' THEN b.value END AS good
                  FROM plant.samples_between(ARRAY[channel], lower(r), upper(r)) AS b) AS s
            GROUP BY date_bin(width, s.time, epoch));
    END LOOP;
    RETURN QUERY
    SELECT p.bucket, min(p.min), plant.rollup_mean(sum(p.sum ORDER BY p.at), sum(p.n_good)::float8, min(p.min), max(p.max)),
           max(p.max), sum(p.n)::bigint, sum(p.n_good)::bigint,
           (array_agg(p.first ORDER BY p.at) FILTER (WHERE p.n_good > 0))[1],
           (array_agg(p.last ORDER BY p.at DESC) FILTER (WHERE p.n_good > 0))[1], (ARRAY['raw', '1m', '1h'])[max(p.level)]
    FROM (
        SELECT 3 AS level, h.* FROM unnest(of_hours) AS h
        UNION ALL
        SELECT 2, m.* FROM unnest(of_minutes) AS m
        UNION ALL
        SELECT 1, s.* FROM unnest(of_samples) AS s
    ) AS p
    GROUP BY p.bucket
    ORDER BY p.bucket;
END
$$;

COMMENT ON FUNCTION plant.series(channel integer, "from" timestamp with time zone, "to" timestamp with time zone, points integer) IS 'A channel for a chart: at most about so many buckets, with min and max of exactly the samples with from <= time < to, from hours, minutes or samples.';

CREATE FUNCTION plant.series_width(span interval, points integer) RETURNS interval
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    BEGIN ATOMIC
 SELECT ('00:00:01'::interval * COALESCE(( SELECT min(w.seconds) AS min
            FROM unnest(ARRAY[(0.001)::double precision, (0.002)::double precision, (0.005)::double precision, (0.01)::double precision, (0.02)::double precision, (0.05)::double precision, (0.1)::double precision, (0.2)::double precision, (0.5)::double precision, (1)::double precision, (2)::double precision, (5)::double precision, (10)::double precision, (15)::double precision, (30)::double precision, (60)::double precision, (120)::double precision, (300)::double precision, (600)::double precision, (900)::double precision, (1800)::double precision, (3600)::double precision, (7200)::double precision, (10800)::double precision, (21600)::double precision, (43200)::double precision]) w(seconds)
           WHERE (w.seconds >= (date_part('epoch'::text, series_width.span) / (series_width.points)::double precision))), ((86400)::double precision * ceil(((date_part('epoch'::text, span) / (points)::double precision) / (86400)::double precision)))));
END;

CREATE FUNCTION plant.setpoint_changes(since timestamp with time zone, until timestamp with time zone, channels text[] DEFAULT NULL::text[], hold interval DEFAULT '00:01:00'::interval, lookback interval DEFAULT '01:00:00'::interval) RETURNS TABLE("time" timestamp with time zone, channel text, what text, old text, new text, unit text, held_before interval)
    LANGUAGE sql STABLE
    AS $$
WITH
wanted AS (
    SELECT c.channel_id, c.name, c.kind, c.unit FROM plant.channels_like(channels) AS c WHERE c.kind <> 'counter'
),
numbers AS (
    SELECT w.channel_id, s.time, s.value, lag(s.value) OVER (PARTITION BY w.channel_id ORDER BY s.time) AS old
    FROM wanted AS w
    CROSS JOIN LATERAL plant.good_samples(w.channel_id, since - lookback, until) AS s
),
texts AS (
    SELECT e.channel_id, e.time, e.text AS value,
           lag(e.text) OVER (PARTITION BY e.channel_id ORDER BY e.time, e.id) AS old
    FROM plant.event AS e
    JOIN wanted AS w ON w.channel_id = e.channel_id
    WHERE w.kind = 'text' AND e.type = 'text' AND coalesce(e.status, 0) >= 0 AND e.time >= since - lookback AND e.time < until
),
-- The first value of all is no change, but what comes after it was held since then.
values_held AS (
    SELECT n.channel_id, n.time, n.old::text AS old, n.value::text AS new
    FROM numbers AS n
    WHERE n.value IS DISTINCT FROM n.old
    UNION ALL
    SELECT t.channel_id, t.time, t.old, t.value
    FROM texts AS t
    WHERE t.value IS DISTINCT FROM t.old
),
changes AS (
    SELECT v.*, v.time - lag(v.time) OVER of_channel AS held, min(v.time) OVER of_channel_whole AS first_time,
           count(*) OVER of_channel_whole AS n
    FROM values_held AS v
    WINDOW of_channel AS (PARTITION BY v.channel_id ORDER BY v.time),
           of_channel_whole AS (PARTITION BY v.channel_id)
)
SELECT c.time, w.name,
       CASE w.kind WHEN 'analog' THEN 'set point' WHEN 'discrete' THEN 'state' ELSE 'mode' END
       || CASE WHEN EXISTS (SELECT FROM plant.event AS e
                            WHERE e.channel_id = c.channel_id AND e.type = 'rounded' AND e.time < until)
               THEN ', rounded' ELSE '' END,
       c.old, c.new, plant.unit_at(c.channel_id, c.time), c.held
FROM changes AS c
JOIN wanted AS w ON w.channel_id = c.channel_id
WHERE c.old IS NOT NULL AND c.time >= since
  AND (until - c.first_time) / c.n >= hold
ORDER BY c.time, w.name
$$;

CREATE FUNCTION plant.standing(since timestamp with time zone, until timestamp with time zone) RETURNS TABLE(channel_id integer, at timestamp with time zone, value double precision, from_time timestamp with time zone, to_time timestamp with time zone, refused bigint)
    LANGUAGE sql STABLE
    AS $$
WITH
said AS (
    SELECT e.channel_id, (e.detail ->> 'at')::timestamptz AS at, min(e.time) AS from_time,
           max((e.detail ->> 'refused')::bigint) AS refused, min(e.detail ->> 'kept_value')::float8 AS value
    FROM plant.event AS e
    WHERE e.type = 'conflict' AND e.text = 'time stands still' AND e.time >= since - INTERVAL '7 days' AND e.time < until
    GROUP BY 1, 2
)
SELECT s.channel_id, s.at, s.value, s.from_time, n.to_time, s.refused
FROM said AS s
CROSS JOIN LATERAL (
    SELECT coalesce(plant.first_sample(s.channel_id, s.at + INTERVAL '1 microsecond', until), 'infinity') AS to_time
    OFFSET 0
) AS n
WHERE n.to_time > since AND n.to_time > s.from_time
$$;

CREATE TABLE plant.rollup_states_1h (
    channel_id integer NOT NULL,
    n integer NOT NULL,
    bucket timestamp with time zone NOT NULL,
    state double precision NOT NULL,
    known bigint NOT NULL
);

CREATE FUNCTION plant.state_hours_of(channels integer[], hour timestamp with time zone) RETURNS SETOF plant.rollup_states_1h
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog'
    SET plan_cache_mode TO 'force_custom_plan'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET max_parallel_workers_per_gather TO '0'
    AS $$
BEGIN
    RETURN QUERY
    WITH gaps AS MATERIALIZED (
        SELECT g.channel_id, g.begins
        FROM plant.gap_begins_between_minutes(channels, plant.later(hour, -plant.hold_limit()),
                                              plant.later(hour, INTERVAL '1 hour')) AS g
    ),
    course AS MATERIALIZED (
        SELECT c.id, v.until, v.before + 0 AS before, v.held, v.carries + 0 AS carries, v.carried_until,
               lead(v.until) OVER (PARTITION BY c.id ORDER BY v.until) IS NULL AS is_last
        FROM unnest(channels) AS c (id)
        LEFT JOIN gaps AS g ON g.channel_id = c.id
        CROSS JOIN LATERAL plant.minute_course(c.id, g.begins, hour) AS v
    ),
    part AS (
        SELECT r.channel_id AS id, r.state, r.n, r.known::float8 AS held
        FROM plant.rollup_states_1m AS r
        WHERE r.channel_id = ANY (channels) AND r.bucket >= hour AND r.bucket < plant.later(hour, INTERVAL '1 hour')
        UNION ALL
        SELECT c.id, c.before, 0, c.held FROM course AS c WHERE c.held > 0
        UNION ALL
        SELECT c.id, c.carries, 0, least(3.6e9, c.carried_until) - c.until
        FROM course AS c
        WHERE c.is_last AND c.carries IS NOT NULL AND least(3.6e9, c.carried_until) > c.until
    )
    SELECT p.id, sum(p.n)::int, hour, p.state, sum(p.held)::bigint
    FROM part AS p
    WHERE p.id IN (SELECT c.id FROM course AS c WHERE c.until > 0.5)
      AND EXISTS (SELECT FROM plant.minutes_between(ARRAY[p.id], hour, plant.later(hour, INTERVAL '1 hour')))
    GROUP BY p.id, p.state
    HAVING sum(p.n) > 0 OR sum(p.held) > 0;
END
$$;

CREATE TABLE plant.rollup_states_1m (
    channel_id integer NOT NULL,
    n integer NOT NULL,
    bucket timestamp with time zone NOT NULL,
    state double precision NOT NULL,
    known bigint NOT NULL
);

CREATE FUNCTION plant.state_minutes_of(channels integer[], "from" timestamp with time zone, "to" timestamp with time zone) RETURNS SETOF plant.rollup_states_1m
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog'
    SET plan_cache_mode TO 'force_custom_plan'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET max_parallel_workers_per_gather TO '0'
    AS $$
DECLARE
    since CONSTANT timestamptz := "from" - plant.hold_limit();
    hold  CONSTANT float8 := date_part('epoch', plant.hold_limit()) * 1e6;
BEGIN
    RETURN QUERY
    WITH gaps AS MATERIALIZED (
        SELECT g.channel_id, g.begins FROM plant.gap_begins(channels, since, "to") AS g
    ),
    course AS MATERIALIZED (
        SELECT c.id, u.minute, u.at, u.state, count(u.sample) OVER (PARTITION BY c.id, u.minute) AS samples,
               lag(u.state) OVER path AS before, lag(u.at) OVER path AS before_at,
               lead(u.minute) OVER path IS DISTINCT FROM u.minute AS is_last
        FROM unnest(channels) AS c (id)
        LEFT JOIN gaps AS g ON g.channel_id = c.id
        CROSS JOIN LATERAL (
            SELECT s.at, s.good + 0 AS state, s.sample, floor(s.at / 6e7) AS minute -- + 0: no -0
            FROM plant.course(c.id, g.begins, since, "from", "to") AS s
        ) AS u
        WINDOW path AS (PARTITION BY c.id ORDER BY u.minute, u.at)
    ),
    part AS (
        -- before a sample
        SELECT c.id, c.minute, c.before AS state, 0 AS entered,
               greatest(0, least(floor(c.at), c.before_at + hold) - greatest(c.before_at, 6e7 * c.minute)) AS held
        FROM course AS c
        WHERE c.at >= 0 AND c.samples > 0 AND c.before IS NOT NULL
        UNION ALL
        -- at it, and behind the last of a minute
        SELECT c.id, c.minute, c.state,
               CASE WHEN c.before = c.state AND c.before_at + hold >= c.at THEN 0 ELSE 1 END,
               CASE WHEN c.is_last THEN 6e7 * (c.minute + 1) - c.at ELSE 0 END
        FROM course AS c
        WHERE c.at >= 0 AND c.samples > 0 AND c.state IS NOT NULL
    )
    SELECT p.id, sum(p.entered)::int, "from" + INTERVAL '1 minute' * p.minute, p.state, sum(p.held)::bigint
    FROM part AS p
    GROUP BY p.id, p.minute, p.state
    HAVING sum(p.entered) > 0 OR sum(p.held) > 0;
END
$$;

CREATE FUNCTION plant.status_hex(status integer) RETURNS text
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    RETURN ('0x'::text || upper(lpad(to_hex(status), 8, '0'::text)));

CREATE FUNCTION plant.storage() RETURNS TABLE(relation text, form text, day timestamp with time zone, rows bigint, bytes bigint)
    LANGUAGE sql STABLE
    SET search_path TO 'pg_catalog'
    SET jit TO 'off'
    AS $$
SELECT s.relation, CASE s.relation WHEN 'samples_packed' THEN 'packed' ELSE 'rows' END, s.day, round(s.rows)::bigint,
       pg_total_relation_size(s.stored)
FROM plant._stored() AS s
ORDER BY s.relation, s.day
$$;

COMMENT ON FUNCTION plant.storage() IS 'Bytes (indexes and TOAST included) and about how many rows (packed, columnstore: samples; NULL: never analyzed) each relation takes, in which form: by the time its chunk begins (samples: a day), or NULL. Reads the catalog only.';

CREATE FUNCTION plant.stuck_sensors(since timestamp with time zone, until timestamp with time zone, channels text[] DEFAULT NULL::text[], hold interval DEFAULT '00:01:00'::interval, factor double precision DEFAULT 20, lookback interval DEFAULT '01:00:00'::interval) RETURNS TABLE(channel text, stuck_from timestamp with time zone, stuck_to timestamp with time zone, value double precision, unit text, times_usual double precision, at_range_limit boolean, moving_beside bigint, note text)
    LANGUAGE sql STABLE
    AS $$
WITH
wanted AS (
    SELECT c.channel_id, c.name, c.unit, c.low, c.high, c.unit_path, least(until, now(), c.ends) AS ends
    FROM plant.channels_like(channels) AS c
    WHERE c.kind = 'analog'
),
readings AS (
    SELECT w.channel_id, s.time, s.value, lag(s.value) OVER (PARTITION BY w.channel_id ORDER BY s.time) AS old
    FROM wanted AS w
    CROSS JOIN LATERAL plant.good_samples(w.channel_id, since - lookback, until) AS s
),
-- One row for each value, from its first sample to the first one of the next value.
held AS MATERIALIZED (
    SELECT r.channel_id, r.value, r.time AS from_time,
           lead(r.time) OVER (PARTITION BY r.channel_id ORDER BY r.time) AS next_time
    FROM readings AS r
    WHERE r.value IS DISTINCT FROM r.old
),
habits AS (
    SELECT h.channel_id, count(*) AS changes,
           percentile_cont(0.95) WITHIN GROUP (ORDER BY extract(epoch FROM h.next_time - h.from_time)) AS usual,
           max(h.next_time - h.from_time) FILTER (WHERE h.next_time < since) AS longest_before
    FROM held AS h
    WHERE h.next_time IS NOT NULL
    GROUP BY h.channel_id
    HAVING count(*) >= 20
),
lasting AS (
    SELECT h.channel_id, h.value, h.from_time, coalesce(h.next_time, w.ends) AS to_time, b.usual, b.longest_before
    FROM held AS h
    JOIN habits AS b ON b.channel_id = h.channel_id
    JOIN wanted AS w ON w.channel_id = h.channel_id
    WHERE coalesce(h.next_time, w.ends) > since
),
still AS (
    SELECT l.*, extract(epoch FROM l.to_time - l.from_time)::float8 / greatest(l.usual, 1e-6) AS times
    FROM lasting AS l
    WHERE l.to_time - l.from_time >= hold
      AND extract(epoch FROM l.to_time - l.from_time) >= factor * l.usual
      AND (l.longest_before IS NULL OR l.to_time - l.from_time >= 3 * l.longest_before)
      AND NOT EXISTS (SELECT FROM plant.gap_channel AS g
                      WHERE g.channel_id = l.channel_id AND g.backfilled_at IS NULL
                        AND g.from_time < l.to_time AND coalesce(g.to_time, 'infinity') > l.from_time)
),
standing AS (
    SELECT t.channel_id, t.value, t.from_time, least(t.to_time, w.ends) AS to_time,
           'its time stands still at ' || to_char(t.at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS "UTC"') || ': '
           || t.refused || ' or more values were not kept' AS note
    FROM plant.standing(since, until) AS t
    JOIN wanted AS w ON w.channel_id = t.channel_id
    WHERE least(t.to_time, w.ends) - t.from_time >= hold AND least(t.to_time, w.ends) > since
),
stuck AS (
    SELECT l.channel_id, l.value, l.from_time, l.to_time, l.times, NULL AS note
    FROM still AS l
    WHERE NOT EXISTS (SELECT FROM standing AS t
                      WHERE t.channel_id = l.channel_id AND t.from_time < l.to_time AND t.to_time > l.from_time)
    UNION ALL
    SELECT t.channel_id, t.value, t.from_time, t.to_time, NULL, t.note FROM standing AS t
),
-- Other sensors of the same unit of the plant that went on changing: it was not all of it that stood still.
beside AS (
    SELECT s.channel_id, s.from_time, count(DISTINCT h.channel_id) AS moving
    FROM stuck AS s
    JOIN wanted AS w ON w.channel_id = s.channel_id
    JOIN wanted AS o ON o.unit_path = w.unit_path AND o.channel_id <> w.channel_id
    JOIN held AS h ON h.channel_id = o.channel_id AND h.from_time > s.from_time AND h.from_time < s.to_time
    GROUP BY s.channel_id, s.from_time
)
SELECT w.name, s.from_time, s.to_time, s.value, plant.unit_at(s.channel_id, s.from_time), s.times,
       coalesce(s.value <= w.low OR s.value >= w.high, false), coalesce(b.moving, 0), s.note
FROM stuck AS s
JOIN wanted AS w ON w.channel_id = s.channel_id
LEFT JOIN beside AS b ON b.channel_id = s.channel_id AND b.from_time = s.from_time
ORDER BY 7, s.times DESC, w.name
$$;

CREATE FUNCTION plant.tidy(sum double precision, terms double precision, most double precision) RETURNS double precision
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN CASE WHEN ((abs(sum) < ('9000000000'::numeric)::double precision) AND (abs(((round((sum * ('1000000'::numeric)::double precision)) / ('1000000'::numeric)::double precision) - sum)) <= ((((0.00000000000000023)::double precision * terms) * abs(sum)) + (((0.00000000000000023)::double precision * terms) * most)))) THEN ((round((sum * ('1000000'::numeric)::double precision)) / ('1000000'::numeric)::double precision) + (0)::double precision) ELSE sum END;

CREATE FUNCTION plant.timeline(since timestamp with time zone, until timestamp with time zone, channels text[] DEFAULT NULL::text[], instant timestamp with time zone DEFAULT NULL::timestamp with time zone, jump double precision DEFAULT 10, busy integer DEFAULT 20, lookback interval DEFAULT '00:15:00'::interval) RETURNS TABLE("time" timestamp with time zone, seconds double precision, what text, channel text, detail text)
    LANGUAGE sql STABLE
    AS $$
WITH
wanted AS (
    SELECT c.channel_id, c.name, c.kind, c.unit FROM plant.channels_like(channels) AS c
),
-- What is of a whole source is told where the source has one of the channels.
sources AS (
    SELECT DISTINCT c.source_id FROM wanted AS w JOIN plant.channel AS c ON c.id = w.channel_id
),
said AS (
    SELECT e.time, e.type AS what, coalesce(w.name, s.name, '') AS channel,
           concat_ws(': ', nullif(e.text, ''), plant.in_words(e.detail)) AS detail,
           count(*) FILTER (WHERE e.type IN ('text', 'conflict')) OVER (PARTITION BY e.channel_id, e.type) > busy
           AND w.channel_id IS NOT NULL AS many
    FROM plant.event AS e
    LEFT JOIN wanted AS w ON w.channel_id = e.channel_id
    LEFT JOIN plant.source AS s ON s.id = e.source_id
    WHERE e.time >= since AND e.time < until
      AND (w.channel_id IS NOT NULL OR e.channel_id IS NULL)
      AND (w.channel_id IS NOT NULL OR e.source_id IS NULL OR e.source_id IN (SELECT o.source_id FROM sources AS o))
),
events AS (
    SELECT s.time, s.what, s.channel, s.detail FROM said AS s WHERE NOT s.many
    UNION ALL
    SELECT min(s.time), s.what, s.channel,
           format('%s until %s UTC, the first: %s, the last: %s', count(*),
                  to_char(max(s.time) AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS'), public.first(s.detail, s.time),
                  public.last(s.detail, s.time))
    FROM said AS s
    WHERE s.many
    GROUP BY s.what, s.channel
),
-- A gap of a whole source is one line, not one for each of its channels.
gaps AS (
    SELECT t.time, t.what, coalesce(c.name, s.name) AS channel,
           concat_ws(': ', g.reason, nullif(g.detail, '')) AS detail
    FROM plant.gap AS g
    JOIN plant.source AS s ON s.id = g.source_id
    LEFT JOIN wanted AS c ON c.channel_id = g.channel_id
    CROSS JOIN LATERAL (VALUES (g.from_time, 'gap begins'), (g.to_time, 'gap ends')) AS t (time, what)
    WHERE t.time >= since AND t.time < until AND g.to_time IS DISTINCT FROM g.from_time
      AND (c.channel_id IS NOT NULL
           OR (g.channel_id IS NULL AND g.source_id IN (SELECT o.source_id FROM sources AS o)))
),
readings AS (
    SELECT w.channel_id, s.time, s.value, s.status,
           lag(s.value) OVER per_channel AS old_value, lag(s.status) OVER per_channel AS old_status
    FROM wanted AS w
    CROSS JOIN LATERAL plant.samples_between(ARRAY[w.channel_id], since - lookback, until) AS s
    WINDOW per_channel AS (PARTITION BY w.channel_id ORDER BY s.time)
),
qualities AS (
    SELECT r.channel_id, r.time, 'quality' AS what,
           plant.quality(r.old_status) || ' → ' || plant.quality(r.status) || ' '
           || plant.status_hex(r.status) AS detail
    FROM readings AS r
    WHERE plant.quality(r.status) <> plant.quality(r.old_status)
),
steps AS (
    SELECT r.channel_id, r.time, r.old_value, r.value, abs(r.value - r.old_value) AS size,
           abs(lag(r.value - r.old_value) OVER (PARTITION BY r.channel_id ORDER BY r.time)) AS size_before
    FROM readings AS r
    WHERE r.status >= 0 AND r.old_status >= 0 AND r.value <> r.old_value
      AND abs(r.value) < 1e50 AND abs(r.old_value) < 1e50 -- else the difference may be more than a float8 holds
),
habits AS (
    SELECT s.channel_id, count(*) AS changes, percentile_cont(0.9) WITHIN GROUP (ORDER BY s.size) AS usual
    FROM steps AS s
    GROUP BY s.channel_id
),
moves AS (
    SELECT s.channel_id, s.time,
           CASE WHEN w.kind = 'discrete' THEN 'state' WHEN h.changes <= 3 THEN 'held value' ELSE 'jump' END AS what,
           round(s.old_value::numeric, 3)::float8 || ' → ' || round(s.value::numeric, 3)::float8 || ' '
           || plant.unit_at(s.channel_id, s.time)
               AS detail
    FROM steps AS s
    JOIN habits AS h ON h.channel_id = s.channel_id
    JOIN wanted AS w ON w.channel_id = s.channel_id
    WHERE (w.kind = 'discrete' AND h.changes <= busy)
       OR (w.kind = 'analog' AND (h.changes <= 3
                                  -- The first of a jump's steps stands for all of them.
                                  OR (s.size > jump * h.usual AND s.size_before <= jump * h.usual)))
),
lines AS (
    SELECT e.time, e.what, e.channel, e.detail FROM events AS e
    UNION ALL
    SELECT g.time, g.what, g.channel, g.detail FROM gaps AS g
    UNION ALL
    SELECT m.time, m.what, w.name, m.detail
    FROM (SELECT * FROM qualities UNION ALL SELECT * FROM moves) AS m
    JOIN wanted AS w ON w.channel_id = m.channel_id
)
SELECT l.time, extract(epoch FROM l.time - coalesce(instant, since + (until - since) / 2))::float8, l.what, l.channel,
       l.detail
FROM lines AS l
WHERE l.time >= since
ORDER BY l.time, l.channel, l.what
$$;

CREATE FUNCTION plant.unit_at(channel integer, at timestamp with time zone) RETURNS text
    LANGUAGE sql STABLE PARALLEL SAFE
    SET search_path TO 'pg_catalog'
    AS $$
SELECT v.unit
FROM plant.channel_version AS v
WHERE v.channel_id = channel AND v.valid_from <= at
ORDER BY v.valid_from DESC
LIMIT 1
$$;

COMMENT ON FUNCTION plant.unit_at(channel integer, at timestamp with time zone) IS 'The unit that a channel''s values had at a time.';

CREATE FUNCTION plant.unit_of(channel text) RETURNS text
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    RETURN CASE WHEN (POSITION(('/'::text) IN (channel)) > 0) THEN regexp_replace(channel, '/[^/]*$'::text, ''::text) ELSE ''::text END;

COMMENT ON FUNCTION plant.unit_of(channel text) IS 'The plant unit that a channel belongs to: its name without the last part.';

CREATE FUNCTION plant.unpack(p plant.samples_packed) RETURNS TABLE("time" timestamp with time zone, value double precision, status integer)
    LANGUAGE sql STABLE ROWS 3600 PARALLEL SAFE
    BEGIN ATOMIC
 SELECT u."time",
     u.value,
     u.status
    FROM plant.unpack(unpack.p, '-infinity'::timestamp with time zone, 'infinity'::timestamp with time zone) u("time", value, status);
END;

CREATE FUNCTION plant.unpacked_values(p plant.samples_packed) RETURNS SETOF double precision
    LANGUAGE sql STABLE PARALLEL SAFE
    BEGIN ATOMIC
 SELECT u.value
    FROM plant.unpack(unpacked_values.p) u("time", value, status);
END;

CREATE FUNCTION plant.version_read(channel integer, version integer, since timestamp with time zone) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog'
    AS $$
DECLARE
    following timestamptz;
    begins    timestamptz;
BEGIN
    SELECT greatest(since, v.valid_from + INTERVAL '1 microsecond') INTO begins
    FROM plant.channel_version AS v
    WHERE v.channel_id = channel AND v.version < version_read.version AND v.valid_from IS NOT NULL
    ORDER BY v.version DESC
    LIMIT 1;
    SELECT min(v.valid_from) INTO following
    FROM plant.channel_version AS v
    WHERE v.channel_id = channel AND v.version > version_read.version;
    UPDATE plant.channel_version AS v SET valid_from = begins, valid_to = coalesce(following, 'infinity')
    WHERE v.channel_id = channel AND v.version = version_read.version AND v.valid_from IS NULL
      AND begins < coalesce(following, 'infinity');
    IF FOUND THEN
        UPDATE plant.channel_version AS v SET valid_to = begins
        WHERE v.channel_id = channel AND v.valid_from < begins AND v.valid_to > begins;
    END IF;
END
$$;

COMMENT ON FUNCTION plant.version_read(channel integer, version integer, since timestamp with time zone) IS 'What the writer calls where a collector says since when it reads a version.';

CREATE FUNCTION plant.what_changed(since timestamp with time zone, until timestamp with time zone, channels text[] DEFAULT NULL::text[], before_since timestamp with time zone DEFAULT NULL::timestamp with time zone, before_until timestamp with time zone DEFAULT NULL::timestamp with time zone, least_score double precision DEFAULT 3, carry interval DEFAULT '01:00:00'::interval) RETURNS TABLE(channel text, unit text, change text, score double precision, mean_before double precision, mean_after double precision, spread_before double precision, spread_after double precision)
    LANGUAGE sql STABLE
    AS $$
WITH
wanted AS (
    SELECT c.channel_id, c.name, c.kind, c.unit, c.span, c.ends
    FROM plant.channels_like(channels) AS c
    WHERE c.kind <> 'text'
),
intervals AS (
    SELECT 'before' AS which, coalesce(before_since, since - (until - since)) AS begins, coalesce(before_until, since) AS ends
    UNION ALL
    SELECT 'after', since, until
),
breaks AS MATERIALIZED (
    SELECT i.which, w.channel_id, w.kind, i.begins, least(i.ends, w.ends) AS ends, b.from_time, b.to_time
    FROM (SELECT DISTINCT i.*, g.channel_id
          FROM intervals AS i
          JOIN plant.gap_channel AS g ON g.from_time < i.ends AND coalesce(g.to_time, 'infinity') > i.begins - carry
          WHERE g.backfilled_at IS NULL) AS i
    JOIN wanted AS w ON w.channel_id = i.channel_id
    CROSS JOIN LATERAL plant.breaks(w.channel_id, i.begins - carry, i.ends) AS b
    WHERE NOT b.backfilled
),
-- Both with bounds that the planner knows, so that it looks only into their chunks.
samples AS (
    SELECT 'before' AS which, coalesce(before_since, since - (until - since)) AS begins,
           least(coalesce(before_until, since), w.ends) AS ends, w.channel_id, w.kind, s.time, s.value
    FROM wanted AS w
    CROSS JOIN LATERAL plant.good_samples(w.channel_id, coalesce(before_since, since - (until - since)) - carry,
                                          coalesce(before_until, since)) AS s
    UNION ALL
    SELECT 'after', since, least(until, w.ends), w.channel_id, w.kind, s.time, s.value
    FROM wanted AS w
    CROSS JOIN LATERAL plant.good_samples(w.channel_id, since - carry, until) AS s
    UNION ALL
    SELECT b.which, b.begins, b.ends, b.channel_id, b.kind, b.from_time, NULL FROM breaks AS b
),
readings AS (
    SELECT s.*, lead(s.time) OVER following AS next_time, lead(s.value) OVER following AS next_value
    FROM samples AS s
    WINDOW following AS (PARTITION BY s.which, s.channel_id ORDER BY s.time, s.value IS NULL)
),
-- A value holds until the next one; a counter's rate is that between two of its readings.
stretches AS (
    SELECT r.which, r.channel_id,
           CASE WHEN r.kind = 'counter' THEN (r.next_value - r.value) / extract(epoch FROM r.next_time - r.time)::float8
                ELSE r.value END AS level,
           extract(epoch FROM least(coalesce(r.next_time, r.ends), r.ends) - greatest(r.time, r.begins))::float8
               AS seconds
    FROM readings AS r
    WHERE coalesce(r.next_time, r.ends) > r.begins AND r.value IS NOT NULL
      AND (r.kind <> 'counter' OR r.next_value IS NOT NULL)
),
means AS (
    SELECT t.which, t.channel_id, sum(t.level * t.seconds) / sum(t.seconds) AS mean, sum(t.seconds) AS seconds
    FROM stretches AS t
    GROUP BY t.which, t.channel_id
    HAVING sum(t.seconds) > 0
),
spreads AS (
    SELECT m.which, m.channel_id, m.mean, sqrt(sum((t.level - m.mean) ^ 2 * t.seconds) / m.seconds) AS spread
    FROM means AS m
    JOIN stretches AS t ON t.which = m.which AND t.channel_id = m.channel_id
    GROUP BY m.which, m.channel_id, m.mean, m.seconds
),
compared AS (
    SELECT w.channel_id, w.name, w.ends, u.unit, b.mean AS mean_b, a.mean AS mean_a, b.spread AS spread_b, a.spread AS spread_a,
           -- What is less than this is no change: a ten-thousandth of the range, a twentieth of a state.
           greatest(CASE w.kind WHEN 'discrete' THEN 0.05 ELSE coalesce(w.span, abs(b.mean)) * 1e-4 END, 1e-12) AS floor
    FROM wanted AS w
    -- Where it changed between the two, means of the one and of the other can't be compared: both are said.
    CROSS JOIN LATERAL (
        SELECT concat_ws(' → ', nullif(nullif(s.before, s.after), ''), s.after) AS unit
        FROM (SELECT plant.unit_at(w.channel_id, coalesce(before_since, since - (until - since))) AS before,
                     plant.unit_at(w.channel_id, until) AS after) AS s
    ) AS u
    LEFT JOIN spreads AS b ON b.channel_id = w.channel_id AND b.which = 'before'
    LEFT JOIN spreads AS a ON a.channel_id = w.channel_id AND a.which = 'after'
    WHERE b.mean IS NOT NULL OR a.mean IS NOT NULL
),
measured AS (
    SELECT c.*, abs(c.mean_a - c.mean_b) / greatest(c.spread_b, c.floor) AS shift,
           -- Twice or half the spread counts as one and a half, four times or a quarter as three.
           1.5 * log(2, (greatest(c.spread_a, c.floor) / greatest(c.spread_b, c.floor))::numeric)::float8 AS widening
    FROM compared AS c
),
judged AS (
    SELECT m.*, CASE WHEN g.channel_id IS NOT NULL AND m.mean_b IS NULL THEN 'no samples before: gap'
                     WHEN g.channel_id IS NOT NULL AND m.mean_a IS NULL THEN 'no samples: gap'
                     WHEN m.mean_b IS NULL THEN 'appeared'
                     WHEN m.mean_a IS NULL THEN CASE WHEN m.ends < until THEN 'retired' ELSE 'fell silent' END
                     WHEN m.shift >= abs(m.widening) THEN CASE WHEN m.mean_a > m.mean_b THEN 'higher' ELSE 'lower' END
                     WHEN m.widening > 0 THEN 'restless'
                     ELSE 'calmer' END AS change,
           CASE WHEN m.shift IS NOT NULL THEN greatest(m.shift, abs(m.widening)) END AS score
    FROM measured AS m
    LEFT JOIN (SELECT DISTINCT b.channel_id, b.which FROM breaks AS b WHERE b.to_time IS NULL OR b.to_time > b.begins) AS g
      ON g.channel_id = m.channel_id
     AND g.which = CASE WHEN m.mean_b IS NULL THEN 'before' WHEN m.mean_a IS NULL THEN 'after' END
)
SELECT j.name, j.unit, j.change, j.score, j.mean_b, j.mean_a, j.spread_b, j.spread_a
FROM judged AS j
WHERE j.score >= least_score OR j.score IS NULL
ORDER BY j.change LIKE 'no samples%', j.score DESC NULLS FIRST, j.name
$$;

CREATE FUNCTION plant.widened(ranges tstzmultirange, width interval) RETURNS tstzmultirange
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN (SELECT COALESCE(range_agg(tstzrange(date_bin(widened.width, lower(r.r), '2000-01-01 00:00:00+00'::timestamp with time zone), CASE WHEN (date_bin(widened.width, upper(r.r), '2000-01-01 00:00:00+00'::timestamp with time zone) = upper(r.r)) THEN upper(r.r) ELSE (date_bin(widened.width, upper(r.r), '2000-01-01 00:00:00+00'::timestamp with time zone) + widened.width) END)), '{}'::tstzmultirange) AS "coalesce" FROM unnest(widened.ranges) r(r));

CREATE FUNCTION plant.whole_buckets(range tstzrange, width interval) RETURNS tstzmultirange
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN (tstzmultirange(range) - plant.widened(tstzmultirange(VARIADIC ARRAY[tstzrange((lower(range) - '00:00:00.000001'::interval), lower(range)), tstzrange(upper(range), (upper(range) + '00:00:00.000001'::interval))]), width));

CREATE TABLE plant.event (
    "time" timestamp with time zone NOT NULL,
    id bigint NOT NULL,
    type text NOT NULL,
    source_id integer,
    channel_id integer,
    status integer,
    text text,
    detail jsonb DEFAULT '{}'::jsonb NOT NULL
);

COMMENT ON TABLE plant.event IS 'What is not a number, or happens now and then. id is a hash of the event: a replay is a no-op.';

CREATE TABLE plant.event_count_1m (
    bucket timestamp with time zone NOT NULL,
    type text NOT NULL COLLATE pg_catalog."C",
    channel_id integer NOT NULL,
    n bigint NOT NULL
)
WITH (fillfactor='50');

COMMENT ON TABLE plant.event_count_1m IS 'How often something happened in the minute that begins at bucket: each event by its type, samples that were not Good (bad_quality, uncertain_quality), and what gateways counted (measurement.field). Each once, however often it was sent.';

COMMENT ON COLUMN plant.event_count_1m.channel_id IS '0: of no channel.';

CREATE TABLE plant.alarm (
    channel_id integer NOT NULL,
    limit_name text NOT NULL,
    state text NOT NULL,
    active boolean NOT NULL,
    since timestamp with time zone NOT NULL,
    value double precision,
    threshold double precision NOT NULL,
    priority text NOT NULL,
    acknowledged_by text,
    acknowledged_at timestamp with time zone,
    shelved_until timestamp with time zone,
    who text,
    why text,
    changed_at timestamp with time zone NOT NULL,
    revision bigint NOT NULL,
    CONSTRAINT alarm_limit_name_check CHECK ((limit_name = ANY (ARRAY['lolo'::text, 'lo'::text, 'hi'::text, 'hihi'::text, 'rate'::text, 'stale'::text, 'bad'::text]))),
    CONSTRAINT alarm_priority_check CHECK ((priority = ANY (ARRAY['critical'::text, 'high'::text, 'medium'::text, 'low'::text]))),
    CONSTRAINT alarm_state_check CHECK ((state = ANY (ARRAY['normal'::text, 'unacknowledged_active'::text, 'acknowledged_active'::text, 'return_to_normal_unacknowledged'::text, 'latched_unacknowledged'::text, 'shelved'::text, 'suppressed_by_design'::text, 'out_of_service'::text])))
);

COMMENT ON TABLE plant.alarm IS 'Each alarm that ever was, as it stands now (ISA-18.2). Its history is plant.event, type alarm.';

COMMENT ON COLUMN plant.alarm.limit_name IS 'lolo, lo, hi, hihi: of the value; rate: of change; stale: silence; bad: quality.';

COMMENT ON COLUMN plant.alarm.active IS 'Whether the condition is beyond the limit now, whatever was done about the alarm.';

COMMENT ON COLUMN plant.alarm.since IS 'Since when it has been in this state.';

COMMENT ON COLUMN plant.alarm.value IS 'When active last changed; NULL: none that is a number.';

COMMENT ON COLUMN plant.alarm.threshold IS 'The limit: in the channel''s unit; rate: units a second; stale: seconds; bad: 0.';

COMMENT ON COLUMN plant.alarm.revision IS 'Grows with each change: of two records of one alarm the higher one is right.';

CREATE TABLE plant.source (
    id integer NOT NULL,
    name text NOT NULL,
    kind text NOT NULL,
    address text NOT NULL,
    state text DEFAULT 'unknown'::text NOT NULL,
    state_since timestamp with time zone,
    reason text,
    attributes jsonb DEFAULT '{}'::jsonb NOT NULL,
    retired_at timestamp with time zone,
    installation_id uuid,
    CONSTRAINT source_kind_check CHECK ((kind = ANY (ARRAY['opcua'::text, 'modbus'::text, 'push'::text])))
);

COMMENT ON TABLE plant.source IS 'One endpoint that channels are read from. state is what its collector said last.';

COMMENT ON COLUMN plant.source.retired_at IS 'Since when the configuration of its installation no longer names it; its samples stay.';

CREATE VIEW plant.alarm_active AS
 SELECT c.name AS channel,
    a.limit_name,
    a.state,
    a.active,
    a.since,
    a.value,
    a.threshold,
    c.unit,
    a.priority,
    plant.unit_of(c.name) AS plant_unit,
    s.name AS source,
    a.acknowledged_by,
    a.acknowledged_at,
    plant.priority_rank(a.priority) AS priority_rank,
    a.channel_id
   FROM ((plant.alarm a
     JOIN plant.channel c ON ((c.id = a.channel_id)))
     JOIN plant.source s ON ((s.id = c.source_id)))
  WHERE ((a.state = ANY (ARRAY['unacknowledged_active'::text, 'acknowledged_active'::text, 'return_to_normal_unacknowledged'::text, 'latched_unacknowledged'::text])) AND (c.retired_at IS NULL))
  ORDER BY (plant.priority_rank(a.priority)), a.since DESC;

COMMENT ON VIEW plant.alarm_active IS 'Alarms to look at: active, or not acknowledged; the most urgent first. unit is the value''s, plant_unit the channel''s place.';

CREATE VIEW plant.alarm_inhibited AS
 SELECT c.name AS channel,
    a.limit_name,
    a.state,
    a.active,
    a.since,
    a.shelved_until,
    a.who,
    a.why,
    a.value,
    a.threshold,
    c.unit,
    a.priority,
    a.channel_id
   FROM (plant.alarm a
     JOIN plant.channel c ON ((c.id = a.channel_id)))
  WHERE ((a.state = ANY (ARRAY['shelved'::text, 'suppressed_by_design'::text, 'out_of_service'::text])) AND (c.retired_at IS NULL))
  ORDER BY a.since DESC;

COMMENT ON VIEW plant.alarm_inhibited IS 'Alarms that are shelved, suppressed by design or out of service, by whom and why.';

CREATE VIEW plant.alarm_limit AS
 SELECT c.id AS channel_id,
    c.name AS channel,
    l.limit_name,
    COALESCE(((l.said #>> '{}'::text[]))::double precision, (0)::double precision) AS threshold,
    COALESCE(((c.attributes ->> 'alarm_deadband'::text))::double precision, (0)::double precision) AS deadband,
    c.unit,
    COALESCE((c.attributes ->> 'alarm_priority'::text), 'medium'::text) AS priority
   FROM (plant.channel c
     CROSS JOIN LATERAL ( SELECT k.limit_name,
                CASE
                    WHEN (k.limit_name = 'bad'::text) THEN '0'::jsonb
                    ELSE (c.attributes -> ('alarm_'::text || k.limit_name))
                END AS "case"
           FROM unnest(ARRAY['lolo'::text, 'lo'::text, 'hi'::text, 'hihi'::text, 'rate'::text, 'stale'::text, 'bad'::text]) k(limit_name)
          WHERE (c.attributes ? ('alarm_'::text || k.limit_name))) l(limit_name, said))
  WHERE ((c.retired_at IS NULL) AND (l.said IS DISTINCT FROM 'null'::jsonb));

COMMENT ON VIEW plant.alarm_limit IS 'Each alarm limit of the tag lists: threshold in the channel''s unit (rate: units a second; stale: seconds; bad: 0).';

CREATE TABLE plant.alarm_notice (
    event_time timestamp with time zone NOT NULL,
    event_id bigint NOT NULL,
    queued_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    kind text NOT NULL,
    channel_id integer NOT NULL,
    limit_name text NOT NULL,
    priority text NOT NULL,
    value double precision,
    threshold double precision,
    late boolean DEFAULT false NOT NULL,
    outcome text,
    notification_id uuid,
    CONSTRAINT alarm_notice_kind_check CHECK ((kind = ANY (ARRAY['alarm'::text, 'return'::text])))
);

COMMENT ON TABLE plant.alarm_notice IS 'What people may have to be told: one row an alarm event that begins or ends an alarm. Kept for a week.';

COMMENT ON COLUMN plant.alarm_notice.outcome IS 'sent (see notification_id), or why not; NULL: the notifier has not looked at it, or a flood holds it back.';

ALTER TABLE plant.channel ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME plant.channel_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE VIEW plant.channel_interval AS
 SELECT id AS channel_id,
    source_id,
    ((attributes ->> 'expected_interval'::text))::double precision AS seconds
   FROM plant.channel c;

CREATE TABLE plant.channel_version (
    channel_id integer NOT NULL,
    valid_from timestamp with time zone,
    valid_to timestamp with time zone DEFAULT 'infinity'::timestamp with time zone NOT NULL,
    name text NOT NULL,
    source_id integer NOT NULL,
    address text NOT NULL,
    kind text NOT NULL,
    unit text NOT NULL,
    range_lo double precision,
    range_hi double precision,
    deadband double precision NOT NULL,
    description text NOT NULL,
    attributes jsonb NOT NULL,
    retention text NOT NULL,
    recorded_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    version integer NOT NULL,
    collected boolean DEFAULT false NOT NULL,
    always boolean GENERATED ALWAYS AS ((COALESCE((NOT isfinite(valid_from)), false) AND (NOT isfinite(valid_to)))) STORED NOT NULL,
    CONSTRAINT channel_version_check CHECK ((valid_to > valid_from))
);

COMMENT ON TABLE plant.channel_version IS 'What a channel was called and meant, valid_from <= time of a sample < valid_to. The first version is valid from -infinity, the newest to infinity; one without valid_from is not read yet, or never was.';

COMMENT ON COLUMN plant.channel_version.collected IS 'Its collector says from when it is valid; else that is the moment of the change.';

CREATE TABLE plant.columnstore_merged (
    chunk text NOT NULL,
    merged xid8 NOT NULL
);

CREATE VIEW plant.coverage AS
 WITH days AS (
         SELECT generate_series(date_trunc('day'::text, LEAST(plant.first_sample_day(), ( SELECT min(g.from_time) AS min
                   FROM plant.gap g), ( SELECT min(c.configured_at) AS min
                   FROM plant.channel c)), 'UTC'::text), now(), '1 day'::interval) AS day
        )
 SELECT d.day,
    o.channel_id,
    o.name,
    o.expected,
    o.got,
    o.got_good,
    o.missing,
    o.missing_seconds,
    o.backfilled_seconds,
    o.quarantined
   FROM (days d
     CROSS JOIN LATERAL plant.coverage_of(d.day) o(channel_id, name, expected, got, got_good, missing, missing_seconds, backfilled_seconds, quarantined));

COMMENT ON VIEW plant.coverage IS 'By channel and day (UTC): samples expected, got and missing (NULL where the channel reports changes only), seconds missing and backfilled, and samples in quarantine. Filter by day.';

CREATE TABLE plant.day_seal (
    serial bigint NOT NULL,
    day date NOT NULL,
    revision integer NOT NULL,
    kind text NOT NULL,
    root bytea NOT NULL,
    previous bytea NOT NULL,
    read_from timestamp with time zone NOT NULL,
    sealed_at timestamp with time zone NOT NULL,
    samples bigint NOT NULL,
    channels integer NOT NULL,
    events bigint NOT NULL,
    gaps integer NOT NULL,
    document bytea NOT NULL,
    events_n integer[] NOT NULL,
    events_digests bytea NOT NULL,
    gaps_digest bytea NOT NULL,
    differs text NOT NULL,
    key bytea NOT NULL,
    signature bytea NOT NULL,
    CONSTRAINT day_seal_check CHECK ((kind =
CASE revision
    WHEN 0 THEN 'first'::text
    ELSE 'amended'::text
END)),
    CONSTRAINT day_seal_revision_check CHECK ((revision >= 0)),
    CONSTRAINT day_seal_serial_check CHECK ((serial > 0))
);
ALTER TABLE ONLY plant.day_seal ALTER COLUMN differs SET COMPRESSION lz4;

COMMENT ON TABLE plant.day_seal IS 'Seals in the order of sealing: each holds the hash of the one before (previous). Late data make an amended one.';

COMMENT ON COLUMN plant.day_seal.day IS 'UTC.';

COMMENT ON COLUMN plant.day_seal.differs IS 'Of an amended seal: which channel-hours differ from the revision before, by how many rows, and why; JSON.';

CREATE TABLE plant.dropped (
    what text NOT NULL,
    retention text NOT NULL,
    until timestamp with time zone NOT NULL
);

COMMENT ON TABLE plant.dropped IS 'Of the class, data of the kind (raw, 1m, 1h, event) before until may have been dropped by rule.';

CREATE VIEW plant.event_count_1h AS
 SELECT public.time_bucket('01:00:00'::interval, bucket) AS bucket,
    type,
    channel_id,
    (sum(n))::bigint AS n
   FROM plant.event_count_1m c
  GROUP BY (public.time_bucket('01:00:00'::interval, bucket)), type, channel_id;

COMMENT ON VIEW plant.event_count_1h IS 'event_count_1m by the hour.';

CREATE VIEW plant.event_count_named AS
 SELECT c.bucket,
    c.type,
    h.name AS channel,
    s.name AS source,
    c.n,
    c.channel_id
   FROM ((plant.event_count_1m c
     LEFT JOIN plant.channel h ON ((h.id = c.channel_id)))
     LEFT JOIN plant.source s ON ((s.id = h.source_id)));

COMMENT ON VIEW plant.event_count_named IS 'event_count_1m with names, for people; NULL: of no channel.';

ALTER TABLE plant.gap ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME plant.gap_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE plant.ingest_batch (
    source_id integer NOT NULL,
    sequence bigint NOT NULL,
    kind text NOT NULL,
    rows integer NOT NULL,
    first_time timestamp with time zone NOT NULL,
    last_time timestamp with time zone NOT NULL,
    received_at timestamp with time zone NOT NULL,
    written_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT ingest_batch_kind_check CHECK ((kind = ANY (ARRAY['samples'::text, 'events'::text, 'gaps'::text, 'counts'::text])))
);

COMMENT ON TABLE plant.ingest_batch IS 'One row a committed spool batch: evidence of arrival, lag, and the key that makes a replay a no-op.';

COMMENT ON COLUMN plant.ingest_batch.sequence IS 'Of the batch in its spool; negative: made of what a gateway sent, so that the same sent again is refused. A row of kind counts must stay as long as its batch may come again: nothing else tells that its increments are in event_count_1m already.';

CREATE TABLE plant.installation (
    id uuid NOT NULL,
    plant text NOT NULL,
    registered_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);

COMMENT ON TABLE plant.installation IS 'A state folder that registers here, and the name of its plant.';

CREATE TABLE plant.job_run (
    id bigint NOT NULL,
    job text NOT NULL,
    started_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    ended_at timestamp with time zone,
    outcome text,
    rows bigint,
    bytes bigint,
    detail text DEFAULT ''::text NOT NULL,
    CONSTRAINT job_run_check CHECK (((ended_at IS NULL) = (outcome IS NULL))),
    CONSTRAINT job_run_outcome_check CHECK ((outcome = ANY (ARRAY['ok'::text, 'failed'::text, 'skipped'::text])))
);

COMMENT ON TABLE plant.job_run IS 'Runs of the jobs of maintenance. No outcome: it runs, or was killed and has not been tried again yet.';

ALTER TABLE plant.job_run ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME plant.job_run_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE plant.migration (
    version integer NOT NULL,
    name text NOT NULL,
    sha256 text NOT NULL,
    applied_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);

CREATE TABLE plant.notification (
    id uuid DEFAULT gen_random_uuid() NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    kind text NOT NULL,
    subject text NOT NULL,
    body jsonb NOT NULL,
    CONSTRAINT notification_kind_check CHECK ((kind = ANY (ARRAY['alarm'::text, 'return'::text, 'flood'::text])))
);

COMMENT ON TABLE plant.notification IS 'A message about alarms, as it was made; id is sent with it, so that a receiver can drop what comes twice.';

CREATE TABLE plant.notification_delivery (
    notification_id uuid NOT NULL,
    target text NOT NULL,
    attempts integer DEFAULT 0 NOT NULL,
    next_attempt_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    delivered_at timestamp with time zone,
    given_up_at timestamp with time zone,
    error text,
    CONSTRAINT notification_delivery_target_check CHECK ((target = ANY (ARRAY['webhook'::text, 'mail'::text])))
);

COMMENT ON TABLE plant.notification_delivery IS 'Whether a message reached a receiver: delivered_at, or error of the last attempt and when the next one is.';

CREATE TABLE plant.packed_channel (
    channel_id integer NOT NULL,
    until timestamp with time zone NOT NULL
);

COMMENT ON TABLE plant.packed_channel IS 'The same by channel: while an hour is being packed, rows of channels whose turn has not come are no late ones.';

CREATE TABLE plant.packed_chunk (
    chunk text NOT NULL,
    from_time timestamp with time zone NOT NULL,
    to_time timestamp with time zone NOT NULL,
    emptied xid8 NOT NULL
);

CREATE TABLE plant.presence (
    installation_id uuid NOT NULL,
    place text NOT NULL,
    folder text NOT NULL,
    seen_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);

COMMENT ON TABLE plant.presence IS 'The one state folder of an installation that runs. It is said anew every 10 s.';

COMMENT ON COLUMN plant.presence.place IS 'Host and state folder.';

COMMENT ON COLUMN plant.presence.folder IS 'Which folder it is: its inode, since the last start of its host. A copy has another.';

CREATE TABLE plant.quarantine (
    id bigint NOT NULL,
    quarantined_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    reason text NOT NULL,
    source_id integer NOT NULL,
    received_at timestamp with time zone NOT NULL,
    channel_id integer,
    time_us bigint,
    value double precision,
    status integer,
    detail jsonb DEFAULT '{}'::jsonb NOT NULL,
    retried_at timestamp with time zone
);

COMMENT ON TABLE plant.quarantine IS 'What came and was kept out of samples, events and gaps, and why. id is a hash of the row: a replay is a no-op.';

COMMENT ON COLUMN plant.quarantine.time_us IS 'The sample''s own time, µs since 1970: it may be one that no timestamptz can hold.';

COMMENT ON COLUMN plant.quarantine.detail IS 'Events and gaps as a whole; of samples the database''s own words where it refused them.';

CREATE TABLE plant.retention_class (
    name text NOT NULL,
    raw interval,
    minute interval,
    hour interval,
    event interval,
    installation_id uuid
);

COMMENT ON TABLE plant.retention_class IS 'How long the channels of a class keep what, as configured; NULL: forever. What has no channel is of class default.';

CREATE TABLE plant.rollup_chunk (
    chunk text NOT NULL,
    packed_to integer NOT NULL,
    emptied xid8
);

CREATE TABLE plant.rollup_closed (
    one boolean DEFAULT true NOT NULL,
    minute timestamp with time zone NOT NULL,
    minutes bigint DEFAULT 0 NOT NULL,
    rows bigint DEFAULT 0 NOT NULL,
    CONSTRAINT rollup_closed_one_check CHECK (one)
);

COMMENT ON TABLE plant.rollup_closed IS 'The minute that a writer closed last. Who closes minutes or makes them anew locks this row.';

COMMENT ON COLUMN plant.rollup_closed.minutes IS 'How many minutes writers have closed with rows of their own.';

COMMENT ON COLUMN plant.rollup_closed.rows IS 'Rows of rollup_1m that they wrote.';

CREATE TABLE plant.rollup_dirty (
    id bigint NOT NULL,
    from_time timestamp with time zone NOT NULL,
    to_time timestamp with time zone NOT NULL,
    channels integer[],
    hours boolean DEFAULT false NOT NULL,
    onward boolean DEFAULT false NOT NULL,
    open_since timestamp with time zone,
    CONSTRAINT rollup_dirty_channels CHECK ((channels <> '{}'::integer[])),
    CONSTRAINT rollup_dirty_check CHECK ((to_time > from_time))
);

COMMENT ON TABLE plant.rollup_dirty IS 'Buckets that are to be made anew, with from_time <= begin < to_time, on whole minutes.';

COMMENT ON COLUMN plant.rollup_dirty.channels IS 'NULL: any.';

COMMENT ON COLUMN plant.rollup_dirty.hours IS 'false: minutes, from samples; true: one hour, from its minutes.';

COMMENT ON COLUMN plant.rollup_dirty.onward IS 'What is carried out of them is another value, though their last sample may be the same: a gap.';

COMMENT ON COLUMN plant.rollup_dirty.open_since IS 'A writer makes this minute; NULL: it is to be made from samples.';

ALTER TABLE plant.rollup_dirty ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME plant.rollup_dirty_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE VIEW plant.rollup_minutes AS
 SELECT r.channel_id,
    r.n,
    r.bucket,
    r.min,
    r.max,
    r.sum,
    r.area,
    r.first,
    r.last,
    r.known,
    r.first_time,
    r.last_time,
    r.n_good,
    r.holds
   FROM plant.rollup_1m r
UNION ALL
 SELECT u.channel_id,
    u.n,
    u.bucket,
    u.min,
    u.max,
    u.sum,
    u.area,
    u.first,
    u.last,
    u.known,
    u.first_time,
    u.last_time,
    u.n_good,
    u.holds
   FROM (plant.rollup_1m_packed p
     CROSS JOIN LATERAL plant.unpack_minutes(p.*, '-infinity'::timestamp with time zone, 'infinity'::timestamp with time zone) u(channel_id, n, bucket, min, max, sum, area, first, last, known, first_time, last_time, n_good, holds));

CREATE VIEW plant.samples AS
 SELECT r."time",
    r.channel_id,
    r.value,
    r.status
   FROM plant.samples_raw r
  WHERE ((r."time" >= ( SELECT u.until
           FROM plant.packed_until u)) OR (NOT (date_trunc('day'::text, r."time", 'UTC'::text) IN ( SELECT d.day
           FROM plant._packed_days() d(day)))) OR (NOT plant.is_packed(r.channel_id, r."time")))
UNION ALL
 SELECT u."time",
    p.channel_id,
    u.value,
    u.status
   FROM (plant.samples_packed p
     CROSS JOIN LATERAL plant.unpack(p.*) u("time", value, status));

COMMENT ON VIEW plant.samples IS 'Every sample once, whatever form its hour is stored in. A condition on time reads every packed hour of the channels all the same, 0.2 µs a sample: where times are known, ask plant.samples_between.';

CREATE VIEW plant.samples_1h AS
 SELECT channel_id,
    bucket,
    n,
    n_good,
    min,
    max,
    plant.rollup_mean(sum, (n_good)::double precision, min, max) AS avg,
    plant.rollup_mean(area, ((known)::double precision / ('1000000'::numeric)::double precision), ('-10000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000'::numeric)::double precision, ('10000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000'::numeric)::double precision) AS twa,
    ((known)::double precision / ('1000000'::numeric)::double precision) AS seconds,
    first,
    last,
    first_time,
    last_time,
    holds
   FROM plant.rollup_1h r;

COMMENT ON VIEW plant.samples_1h IS 'Hours, as samples_1m.';

CREATE VIEW plant.samples_1m AS
 SELECT channel_id,
    bucket,
    n,
    n_good,
    min,
    max,
    plant.rollup_mean(sum, (n_good)::double precision, min, max) AS avg,
    plant.rollup_mean(area, ((known)::double precision / ('1000000'::numeric)::double precision), ('-10000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000'::numeric)::double precision, ('10000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000'::numeric)::double precision) AS twa,
    ((known)::double precision / ('1000000'::numeric)::double precision) AS seconds,
    first,
    last,
    first_time,
    last_time,
    holds
   FROM plant.rollup_minutes r;

COMMENT ON VIEW plant.samples_1m IS 'Minutes: samples, values that are neither Bad nor NaN, and the time-weighted average over the seconds in which the value is known. A condition on bucket reads every packed day of the channels all the same: where times are known, ask plant.minutes_between. The newest minutes, and those with a row in rollup_dirty, are yet to be made.';

CREATE VIEW plant.samples_named AS
 SELECT s."time",
    v.name,
    s.value,
    v.unit,
    plant.quality(s.status) AS quality,
    s.status,
    s.channel_id
   FROM (plant.samples s
     JOIN plant.channel_version v ON (((v.channel_id = s.channel_id) AND
        CASE
            WHEN v.always THEN true
            ELSE ((s."time" >= v.valid_from) AND (s."time" < v.valid_to))
        END)));

COMMENT ON VIEW plant.samples_named IS 'Samples with the name and unit that their channel had then, for people. By today''s name: WHERE channel_id = (SELECT c.id FROM channel AS c WHERE c.name = …).';

CREATE TABLE plant.seal_digest (
    day date NOT NULL,
    revision integer NOT NULL,
    channel_id integer NOT NULL,
    n integer[] NOT NULL,
    digests bytea NOT NULL,
    CONSTRAINT seal_digest_n_check CHECK ((cardinality(n) = 24))
);

COMMENT ON TABLE plant.seal_digest IS 'By channel, what a seal was made from; the newest row up to a revision holds.';

CREATE TABLE plant.seal_document (
    digest bytea NOT NULL,
    content text NOT NULL,
    CONSTRAINT seal_document_digest_check CHECK ((octet_length(digest) = 32))
);
ALTER TABLE ONLY plant.seal_document ALTER COLUMN content SET COMPRESSION lz4;

COMMENT ON TABLE plant.seal_document IS 'What channel ids mean (name, unit, address), as JSON, whenever that changed between two seals.';

CREATE TABLE plant.seal_evidence (
    one boolean DEFAULT true NOT NULL,
    until timestamp with time zone DEFAULT '1970-01-01 00:00:00+00'::timestamp with time zone NOT NULL,
    CONSTRAINT seal_evidence_one_check CHECK (one)
);

CREATE TABLE plant.seal_key (
    fingerprint bytea NOT NULL,
    public bytea NOT NULL,
    made_at timestamp with time zone NOT NULL,
    succeeds bytea,
    own_signature bytea NOT NULL,
    former_signature bytea,
    CONSTRAINT seal_key_fingerprint_check CHECK ((octet_length(fingerprint) = 32)),
    CONSTRAINT seal_key_public_check CHECK ((octet_length(public) = 32))
);

COMMENT ON TABLE plant.seal_key IS 'Public keys that seals are signed with; each vouched for by the one that it succeeds.';

CREATE TABLE plant.seal_progress (
    day date NOT NULL,
    read_from timestamp with time zone NOT NULL,
    hour smallint NOT NULL,
    behind integer NOT NULL
);

COMMENT ON TABLE plant.seal_progress IS 'Hours before hour are read, and of that hour the channels up to behind.';

CREATE TABLE plant.seal_work (
    day date NOT NULL,
    channel_id integer NOT NULL,
    hour smallint NOT NULL,
    n integer NOT NULL,
    digest bytea NOT NULL
);

CREATE TABLE plant.setting (
    key text NOT NULL,
    value text NOT NULL,
    installation_id uuid
);

COMMENT ON TABLE plant.setting IS 'Facts about this database: edition (apache or community), timescaledb_version.';

ALTER TABLE plant.source ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME plant.source_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE VIEW plant.states_1h AS
 SELECT channel_id,
    bucket,
    state,
    ((known)::double precision / ('1000000'::numeric)::double precision) AS seconds,
    n
   FROM plant.rollup_states_1h s;

COMMENT ON VIEW plant.states_1h IS 'The same by hour.';

CREATE VIEW plant.states_1m AS
 SELECT channel_id,
    bucket,
    state,
    ((known)::double precision / ('1000000'::numeric)::double precision) AS seconds,
    n
   FROM plant.rollup_states_1m s;

COMMENT ON VIEW plant.states_1m IS 'Discrete channels by minute: known time in each state, and how often it was entered (from another state, or out of the unknown).';

GRANT USAGE ON SCHEMA plant TO plant_owner;
GRANT USAGE ON SCHEMA plant TO plant_ingest;
GRANT USAGE ON SCHEMA plant TO plant_reader;
GRANT USAGE ON SCHEMA plant TO plant_maintenance;

GRANT ALL ON TABLE plant.channel TO plant_owner;
GRANT SELECT ON TABLE plant.channel TO plant_ingest;
GRANT SELECT ON TABLE plant.channel TO plant_reader;
GRANT SELECT,MAINTAIN ON TABLE plant.channel TO plant_maintenance;

GRANT INSERT(name) ON TABLE plant.channel TO plant_ingest;

GRANT INSERT(source_id) ON TABLE plant.channel TO plant_ingest;

GRANT INSERT(address) ON TABLE plant.channel TO plant_ingest;

GRANT INSERT(kind) ON TABLE plant.channel TO plant_ingest;

REVOKE ALL ON FUNCTION plant._record_change(type text, at timestamp with time zone, source integer, channel integer, name text, old jsonb, new jsonb) FROM PUBLIC;

GRANT SELECT ON TABLE plant.samples_packed TO plant_ingest;
GRANT SELECT ON TABLE plant.samples_packed TO plant_reader;
GRANT ALL ON TABLE plant.samples_packed TO plant_owner;
GRANT SELECT,MAINTAIN ON TABLE plant.samples_packed TO plant_maintenance;

GRANT SELECT ON TABLE plant.packed_until TO plant_ingest;
GRANT SELECT ON TABLE plant.packed_until TO plant_reader;
GRANT ALL ON TABLE plant.packed_until TO plant_owner;
GRANT SELECT,MAINTAIN ON TABLE plant.packed_until TO plant_maintenance;

GRANT ALL ON TABLE plant.samples_raw TO plant_owner;
GRANT SELECT,INSERT ON TABLE plant.samples_raw TO plant_ingest;
GRANT SELECT ON TABLE plant.samples_raw TO plant_reader;
GRANT SELECT,MAINTAIN ON TABLE plant.samples_raw TO plant_maintenance;

GRANT ALL ON FUNCTION plant.coverage_of(day timestamp with time zone) TO plant_reader;
GRANT ALL ON FUNCTION plant.coverage_of(day timestamp with time zone) TO plant_ingest;
GRANT ALL ON FUNCTION plant.coverage_of(day timestamp with time zone) TO plant_owner;

REVOKE ALL ON FUNCTION plant.delete_samples(channels integer[], "from" timestamp with time zone, "to" timestamp with time zone, why text) FROM PUBLIC;
GRANT ALL ON FUNCTION plant.delete_samples(channels integer[], "from" timestamp with time zone, "to" timestamp with time zone, why text) TO plant_owner;

REVOKE ALL ON FUNCTION plant.drop_slice(what text, relation regclass, from_time timestamp with time zone, to_time timestamp with time zone, classes text[], why text, dry_run boolean) FROM PUBLIC;
GRANT ALL ON FUNCTION plant.drop_slice(what text, relation regclass, from_time timestamp with time zone, to_time timestamp with time zone, classes text[], why text, dry_run boolean) TO plant_maintenance;
GRANT ALL ON FUNCTION plant.drop_slice(what text, relation regclass, from_time timestamp with time zone, to_time timestamp with time zone, classes text[], why text, dry_run boolean) TO plant_owner;

REVOKE ALL ON FUNCTION plant.end_long_readers(statement interval, transaction interval, idle interval, large integer[]) FROM PUBLIC;
GRANT ALL ON FUNCTION plant.end_long_readers(statement interval, transaction interval, idle interval, large integer[]) TO plant_maintenance;
GRANT ALL ON FUNCTION plant.end_long_readers(statement interval, transaction interval, idle interval, large integer[]) TO plant_owner;

GRANT ALL ON FUNCTION plant.first_sample(channel integer, since timestamp with time zone, until timestamp with time zone) TO plant_reader;
GRANT ALL ON FUNCTION plant.first_sample(channel integer, since timestamp with time zone, until timestamp with time zone) TO plant_ingest;
GRANT ALL ON FUNCTION plant.first_sample(channel integer, since timestamp with time zone, until timestamp with time zone) TO plant_owner;

GRANT ALL ON TABLE plant.gap TO plant_owner;
GRANT SELECT,INSERT ON TABLE plant.gap TO plant_ingest;
GRANT SELECT ON TABLE plant.gap TO plant_reader;
GRANT SELECT,MAINTAIN ON TABLE plant.gap TO plant_maintenance;

GRANT UPDATE(to_time) ON TABLE plant.gap TO plant_ingest;

GRANT UPDATE(reason) ON TABLE plant.gap TO plant_ingest;

GRANT UPDATE(backfilled_at) ON TABLE plant.gap TO plant_ingest;

GRANT UPDATE(detail) ON TABLE plant.gap TO plant_ingest;

GRANT UPDATE(revision) ON TABLE plant.gap TO plant_ingest;

GRANT SELECT ON TABLE plant.gap_channel TO plant_ingest;
GRANT SELECT ON TABLE plant.gap_channel TO plant_reader;
GRANT SELECT ON TABLE plant.gap_channel TO plant_owner;
GRANT SELECT,MAINTAIN ON TABLE plant.gap_channel TO plant_maintenance;

GRANT SELECT,INSERT ON TABLE plant.rollup_1m TO plant_ingest;
GRANT SELECT ON TABLE plant.rollup_1m TO plant_reader;
GRANT ALL ON TABLE plant.rollup_1m TO plant_owner;
GRANT SELECT,MAINTAIN ON TABLE plant.rollup_1m TO plant_maintenance;

GRANT SELECT ON TABLE plant.rollup_1m_packed TO plant_ingest;
GRANT SELECT ON TABLE plant.rollup_1m_packed TO plant_reader;
GRANT ALL ON TABLE plant.rollup_1m_packed TO plant_owner;
GRANT SELECT,MAINTAIN ON TABLE plant.rollup_1m_packed TO plant_maintenance;

REVOKE ALL ON FUNCTION plant.gaps_are_dirty() FROM PUBLIC;

GRANT ALL ON FUNCTION plant.has_sample_before(channel integer, before timestamp with time zone) TO plant_reader;
GRANT ALL ON FUNCTION plant.has_sample_before(channel integer, before timestamp with time zone) TO plant_ingest;
GRANT ALL ON FUNCTION plant.has_sample_before(channel integer, before timestamp with time zone) TO plant_owner;

GRANT SELECT ON TABLE plant.rollup_1h TO plant_ingest;
GRANT SELECT ON TABLE plant.rollup_1h TO plant_reader;
GRANT ALL ON TABLE plant.rollup_1h TO plant_owner;
GRANT SELECT,MAINTAIN ON TABLE plant.rollup_1h TO plant_maintenance;

GRANT ALL ON FUNCTION plant.kept_out(since timestamp with time zone, until timestamp with time zone) TO plant_reader;
GRANT ALL ON FUNCTION plant.kept_out(since timestamp with time zone, until timestamp with time zone) TO plant_ingest;
GRANT ALL ON FUNCTION plant.kept_out(since timestamp with time zone, until timestamp with time zone) TO plant_owner;

REVOKE ALL ON FUNCTION plant.make_chunk(relation regclass, t timestamp with time zone) FROM PUBLIC;
GRANT ALL ON FUNCTION plant.make_chunk(relation regclass, t timestamp with time zone) TO plant_maintenance;
GRANT ALL ON FUNCTION plant.make_chunk(relation regclass, t timestamp with time zone) TO plant_owner;

REVOKE ALL ON FUNCTION plant.reader_sessions() FROM PUBLIC;
GRANT ALL ON FUNCTION plant.reader_sessions() TO plant_maintenance;
GRANT ALL ON FUNCTION plant.reader_sessions() TO plant_owner;

REVOKE ALL ON FUNCTION plant.record_overload(at timestamp with time zone, said text, detail jsonb) FROM PUBLIC;
GRANT ALL ON FUNCTION plant.record_overload(at timestamp with time zone, said text, detail jsonb) TO plant_maintenance;
GRANT ALL ON FUNCTION plant.record_overload(at timestamp with time zone, said text, detail jsonb) TO plant_owner;

REVOKE ALL ON FUNCTION plant.record_retention(said text, detail jsonb) FROM PUBLIC;
GRANT ALL ON FUNCTION plant.record_retention(said text, detail jsonb) TO plant_maintenance;
GRANT ALL ON FUNCTION plant.record_retention(said text, detail jsonb) TO plant_owner;

GRANT SELECT ON TABLE plant.rollup_states_1h TO plant_ingest;
GRANT SELECT ON TABLE plant.rollup_states_1h TO plant_reader;
GRANT ALL ON TABLE plant.rollup_states_1h TO plant_owner;
GRANT SELECT,MAINTAIN ON TABLE plant.rollup_states_1h TO plant_maintenance;

GRANT SELECT,INSERT ON TABLE plant.rollup_states_1m TO plant_ingest;
GRANT SELECT ON TABLE plant.rollup_states_1m TO plant_reader;
GRANT ALL ON TABLE plant.rollup_states_1m TO plant_owner;
GRANT SELECT,MAINTAIN ON TABLE plant.rollup_states_1m TO plant_maintenance;

REVOKE ALL ON FUNCTION plant.version_read(channel integer, version integer, since timestamp with time zone) FROM PUBLIC;
GRANT ALL ON FUNCTION plant.version_read(channel integer, version integer, since timestamp with time zone) TO plant_ingest;

GRANT ALL ON TABLE plant.event TO plant_owner;
GRANT SELECT,INSERT ON TABLE plant.event TO plant_ingest;
GRANT SELECT ON TABLE plant.event TO plant_reader;
GRANT SELECT,MAINTAIN ON TABLE plant.event TO plant_maintenance;

GRANT SELECT,INSERT ON TABLE plant.event_count_1m TO plant_ingest;
GRANT SELECT ON TABLE plant.event_count_1m TO plant_reader;
GRANT ALL ON TABLE plant.event_count_1m TO plant_owner;
GRANT SELECT,MAINTAIN ON TABLE plant.event_count_1m TO plant_maintenance;

GRANT UPDATE(n) ON TABLE plant.event_count_1m TO plant_ingest;

GRANT SELECT,INSERT,UPDATE ON TABLE plant.alarm TO plant_ingest;
GRANT SELECT ON TABLE plant.alarm TO plant_reader;
GRANT SELECT,MAINTAIN ON TABLE plant.alarm TO plant_maintenance;
GRANT ALL ON TABLE plant.alarm TO plant_owner;

GRANT ALL ON TABLE plant.source TO plant_owner;
GRANT SELECT ON TABLE plant.source TO plant_ingest;
GRANT SELECT ON TABLE plant.source TO plant_reader;
GRANT SELECT,MAINTAIN ON TABLE plant.source TO plant_maintenance;

GRANT UPDATE(state) ON TABLE plant.source TO plant_ingest;

GRANT UPDATE(state_since) ON TABLE plant.source TO plant_ingest;

GRANT UPDATE(reason) ON TABLE plant.source TO plant_ingest;

GRANT SELECT ON TABLE plant.alarm_active TO plant_ingest;
GRANT SELECT ON TABLE plant.alarm_active TO plant_reader;
GRANT SELECT,MAINTAIN ON TABLE plant.alarm_active TO plant_maintenance;

GRANT SELECT ON TABLE plant.alarm_inhibited TO plant_ingest;
GRANT SELECT ON TABLE plant.alarm_inhibited TO plant_reader;
GRANT SELECT,MAINTAIN ON TABLE plant.alarm_inhibited TO plant_maintenance;

GRANT SELECT ON TABLE plant.alarm_limit TO plant_ingest;
GRANT SELECT ON TABLE plant.alarm_limit TO plant_reader;
GRANT SELECT,MAINTAIN ON TABLE plant.alarm_limit TO plant_maintenance;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE plant.alarm_notice TO plant_ingest;
GRANT SELECT ON TABLE plant.alarm_notice TO plant_reader;
GRANT SELECT,MAINTAIN ON TABLE plant.alarm_notice TO plant_maintenance;
GRANT ALL ON TABLE plant.alarm_notice TO plant_owner;

GRANT SELECT ON TABLE plant.channel_interval TO plant_ingest;
GRANT SELECT ON TABLE plant.channel_interval TO plant_reader;
GRANT SELECT ON TABLE plant.channel_interval TO plant_owner;
GRANT SELECT,MAINTAIN ON TABLE plant.channel_interval TO plant_maintenance;

GRANT SELECT ON TABLE plant.channel_version TO plant_ingest;
GRANT SELECT ON TABLE plant.channel_version TO plant_reader;
GRANT SELECT,MAINTAIN ON TABLE plant.channel_version TO plant_maintenance;
GRANT ALL ON TABLE plant.channel_version TO plant_owner;

GRANT SELECT ON TABLE plant.columnstore_merged TO plant_ingest;
GRANT SELECT ON TABLE plant.columnstore_merged TO plant_reader;
GRANT ALL ON TABLE plant.columnstore_merged TO plant_owner;
GRANT SELECT,MAINTAIN ON TABLE plant.columnstore_merged TO plant_maintenance;

GRANT SELECT ON TABLE plant.coverage TO plant_ingest;
GRANT SELECT ON TABLE plant.coverage TO plant_reader;
GRANT SELECT,MAINTAIN ON TABLE plant.coverage TO plant_maintenance;
GRANT SELECT ON TABLE plant.coverage TO plant_owner;

GRANT SELECT ON TABLE plant.day_seal TO plant_ingest;
GRANT SELECT ON TABLE plant.day_seal TO plant_reader;
GRANT SELECT,INSERT ON TABLE plant.day_seal TO plant_owner;
GRANT SELECT,MAINTAIN ON TABLE plant.day_seal TO plant_maintenance;

GRANT SELECT ON TABLE plant.dropped TO plant_ingest;
GRANT SELECT ON TABLE plant.dropped TO plant_reader;
GRANT SELECT,MAINTAIN ON TABLE plant.dropped TO plant_maintenance;
GRANT ALL ON TABLE plant.dropped TO plant_owner;

GRANT SELECT ON TABLE plant.event_count_1h TO plant_ingest;
GRANT SELECT ON TABLE plant.event_count_1h TO plant_reader;
GRANT SELECT ON TABLE plant.event_count_1h TO plant_owner;
GRANT SELECT,MAINTAIN ON TABLE plant.event_count_1h TO plant_maintenance;

GRANT SELECT ON TABLE plant.event_count_named TO plant_ingest;
GRANT SELECT ON TABLE plant.event_count_named TO plant_reader;
GRANT SELECT ON TABLE plant.event_count_named TO plant_owner;
GRANT SELECT,MAINTAIN ON TABLE plant.event_count_named TO plant_maintenance;

GRANT ALL ON TABLE plant.ingest_batch TO plant_owner;
GRANT SELECT,INSERT ON TABLE plant.ingest_batch TO plant_ingest;
GRANT SELECT ON TABLE plant.ingest_batch TO plant_reader;
GRANT SELECT,DELETE,MAINTAIN ON TABLE plant.ingest_batch TO plant_maintenance;

GRANT SELECT ON TABLE plant.installation TO plant_ingest;
GRANT SELECT ON TABLE plant.installation TO plant_reader;
GRANT SELECT,MAINTAIN ON TABLE plant.installation TO plant_maintenance;
GRANT ALL ON TABLE plant.installation TO plant_owner;

GRANT SELECT ON TABLE plant.job_run TO plant_ingest;
GRANT SELECT ON TABLE plant.job_run TO plant_reader;
GRANT SELECT,INSERT,DELETE,MAINTAIN,UPDATE ON TABLE plant.job_run TO plant_maintenance;
GRANT ALL ON TABLE plant.job_run TO plant_owner;

GRANT ALL ON TABLE plant.migration TO plant_owner;
GRANT SELECT ON TABLE plant.migration TO plant_ingest;
GRANT SELECT ON TABLE plant.migration TO plant_reader;
GRANT SELECT,MAINTAIN ON TABLE plant.migration TO plant_maintenance;

GRANT SELECT,INSERT,DELETE ON TABLE plant.notification TO plant_ingest;
GRANT SELECT ON TABLE plant.notification TO plant_reader;
GRANT SELECT,MAINTAIN ON TABLE plant.notification TO plant_maintenance;
GRANT ALL ON TABLE plant.notification TO plant_owner;

GRANT SELECT,INSERT,UPDATE ON TABLE plant.notification_delivery TO plant_ingest;
GRANT SELECT ON TABLE plant.notification_delivery TO plant_reader;
GRANT SELECT,MAINTAIN ON TABLE plant.notification_delivery TO plant_maintenance;
GRANT ALL ON TABLE plant.notification_delivery TO plant_owner;

GRANT SELECT ON TABLE plant.packed_channel TO plant_ingest;
GRANT SELECT ON TABLE plant.packed_channel TO plant_reader;
GRANT ALL ON TABLE plant.packed_channel TO plant_owner;
GRANT SELECT,MAINTAIN ON TABLE plant.packed_channel TO plant_maintenance;

GRANT SELECT ON TABLE plant.packed_chunk TO plant_ingest;
GRANT SELECT ON TABLE plant.packed_chunk TO plant_reader;
GRANT ALL ON TABLE plant.packed_chunk TO plant_owner;
GRANT SELECT,MAINTAIN ON TABLE plant.packed_chunk TO plant_maintenance;

GRANT SELECT ON TABLE plant.presence TO plant_ingest;
GRANT SELECT ON TABLE plant.presence TO plant_reader;
GRANT SELECT,INSERT,MAINTAIN,UPDATE ON TABLE plant.presence TO plant_maintenance;
GRANT ALL ON TABLE plant.presence TO plant_owner;

GRANT SELECT,INSERT ON TABLE plant.quarantine TO plant_ingest;
GRANT SELECT ON TABLE plant.quarantine TO plant_reader;
GRANT ALL ON TABLE plant.quarantine TO plant_owner;
GRANT SELECT,DELETE,MAINTAIN ON TABLE plant.quarantine TO plant_maintenance;

GRANT SELECT ON TABLE plant.retention_class TO plant_ingest;
GRANT SELECT ON TABLE plant.retention_class TO plant_reader;
GRANT SELECT,MAINTAIN ON TABLE plant.retention_class TO plant_maintenance;
GRANT ALL ON TABLE plant.retention_class TO plant_owner;

GRANT SELECT ON TABLE plant.rollup_chunk TO plant_ingest;
GRANT SELECT ON TABLE plant.rollup_chunk TO plant_reader;
GRANT ALL ON TABLE plant.rollup_chunk TO plant_owner;
GRANT SELECT,MAINTAIN ON TABLE plant.rollup_chunk TO plant_maintenance;

GRANT SELECT,UPDATE ON TABLE plant.rollup_closed TO plant_ingest;
GRANT SELECT ON TABLE plant.rollup_closed TO plant_reader;
GRANT SELECT,MAINTAIN ON TABLE plant.rollup_closed TO plant_maintenance;
GRANT ALL ON TABLE plant.rollup_closed TO plant_owner;

GRANT SELECT,INSERT,DELETE ON TABLE plant.rollup_dirty TO plant_ingest;
GRANT SELECT ON TABLE plant.rollup_dirty TO plant_reader;
GRANT ALL ON TABLE plant.rollup_dirty TO plant_owner;
GRANT SELECT,MAINTAIN ON TABLE plant.rollup_dirty TO plant_maintenance;

GRANT UPDATE(open_since) ON TABLE plant.rollup_dirty TO plant_ingest;

GRANT SELECT ON TABLE plant.rollup_minutes TO plant_ingest;
GRANT SELECT ON TABLE plant.rollup_minutes TO plant_reader;
GRANT SELECT,MAINTAIN ON TABLE plant.rollup_minutes TO plant_maintenance;

GRANT ALL ON TABLE plant.samples TO plant_owner;
GRANT SELECT ON TABLE plant.samples TO plant_ingest;
GRANT SELECT ON TABLE plant.samples TO plant_reader;
GRANT SELECT,MAINTAIN ON TABLE plant.samples TO plant_maintenance;

GRANT SELECT ON TABLE plant.samples_1h TO plant_ingest;
GRANT SELECT ON TABLE plant.samples_1h TO plant_reader;
GRANT SELECT,MAINTAIN ON TABLE plant.samples_1h TO plant_maintenance;

GRANT SELECT ON TABLE plant.samples_1m TO plant_ingest;
GRANT SELECT ON TABLE plant.samples_1m TO plant_reader;
GRANT SELECT,MAINTAIN ON TABLE plant.samples_1m TO plant_maintenance;

GRANT ALL ON TABLE plant.samples_named TO plant_owner;
GRANT SELECT ON TABLE plant.samples_named TO plant_ingest;
GRANT SELECT ON TABLE plant.samples_named TO plant_reader;
GRANT SELECT,MAINTAIN ON TABLE plant.samples_named TO plant_maintenance;

GRANT SELECT ON TABLE plant.seal_digest TO plant_ingest;
GRANT SELECT ON TABLE plant.seal_digest TO plant_reader;
GRANT SELECT,INSERT ON TABLE plant.seal_digest TO plant_owner;
GRANT SELECT,MAINTAIN ON TABLE plant.seal_digest TO plant_maintenance;

GRANT SELECT ON TABLE plant.seal_document TO plant_ingest;
GRANT SELECT ON TABLE plant.seal_document TO plant_reader;
GRANT SELECT,INSERT ON TABLE plant.seal_document TO plant_owner;
GRANT SELECT,MAINTAIN ON TABLE plant.seal_document TO plant_maintenance;

GRANT SELECT ON TABLE plant.seal_evidence TO plant_ingest;
GRANT SELECT ON TABLE plant.seal_evidence TO plant_reader;
GRANT ALL ON TABLE plant.seal_evidence TO plant_owner;
GRANT SELECT,MAINTAIN ON TABLE plant.seal_evidence TO plant_maintenance;

GRANT SELECT ON TABLE plant.seal_key TO plant_ingest;
GRANT SELECT ON TABLE plant.seal_key TO plant_reader;
GRANT SELECT,INSERT ON TABLE plant.seal_key TO plant_owner;
GRANT SELECT,MAINTAIN ON TABLE plant.seal_key TO plant_maintenance;

GRANT SELECT ON TABLE plant.seal_progress TO plant_ingest;
GRANT SELECT ON TABLE plant.seal_progress TO plant_reader;
GRANT ALL ON TABLE plant.seal_progress TO plant_owner;
GRANT SELECT,MAINTAIN ON TABLE plant.seal_progress TO plant_maintenance;

GRANT SELECT ON TABLE plant.seal_work TO plant_ingest;
GRANT SELECT ON TABLE plant.seal_work TO plant_reader;
GRANT ALL ON TABLE plant.seal_work TO plant_owner;
GRANT SELECT,MAINTAIN ON TABLE plant.seal_work TO plant_maintenance;

GRANT ALL ON TABLE plant.setting TO plant_owner;
GRANT SELECT ON TABLE plant.setting TO plant_ingest;
GRANT SELECT ON TABLE plant.setting TO plant_reader;
GRANT SELECT,MAINTAIN ON TABLE plant.setting TO plant_maintenance;

GRANT SELECT ON TABLE plant.states_1h TO plant_ingest;
GRANT SELECT ON TABLE plant.states_1h TO plant_reader;
GRANT SELECT,MAINTAIN ON TABLE plant.states_1h TO plant_maintenance;

GRANT SELECT ON TABLE plant.states_1m TO plant_ingest;
GRANT SELECT ON TABLE plant.states_1m TO plant_reader;
GRANT SELECT,MAINTAIN ON TABLE plant.states_1m TO plant_maintenance;

SELECT public.create_hypertable('plant.event', public.by_range('time', INTERVAL '7 days'), create_default_indexes => false);
SELECT public.create_hypertable('plant.event_count_1m', public.by_range('bucket', INTERVAL '7 days'), create_default_indexes => false);
SELECT public.create_hypertable('plant.rollup_1h', public.by_range('bucket', INTERVAL '30 days'), create_default_indexes => false);
SELECT public.create_hypertable('plant.rollup_1m', public.by_range('bucket', INTERVAL '1 day'), create_default_indexes => false);
SELECT public.create_hypertable('plant.rollup_1m_packed', public.by_range('day', INTERVAL '30 days'), create_default_indexes => false);
SELECT public.create_hypertable('plant.rollup_states_1h', public.by_range('bucket', INTERVAL '30 days'), create_default_indexes => false);
SELECT public.create_hypertable('plant.rollup_states_1m', public.by_range('bucket', INTERVAL '7 days'), create_default_indexes => false);
SELECT public.create_hypertable('plant.samples_packed', public.by_range('hour', INTERVAL '1 day'), create_default_indexes => false);
SELECT public.create_hypertable('plant.samples_raw', public.by_range('time', INTERVAL '1 day'), create_default_indexes => false);

SELECT pg_catalog.set_config('search_path', '', false);
SET check_function_bodies = false;
SET client_min_messages = warning;

ALTER TABLE plant.alarm_notice
    ADD CONSTRAINT alarm_notice_pkey PRIMARY KEY (event_time, event_id);

ALTER TABLE plant.alarm
    ADD CONSTRAINT alarm_pkey PRIMARY KEY (channel_id, limit_name);

ALTER TABLE plant.channel
    ADD CONSTRAINT channel_name_key UNIQUE (name);

ALTER TABLE plant.channel
    ADD CONSTRAINT channel_pkey PRIMARY KEY (id);

ALTER TABLE plant.channel_version
    ADD CONSTRAINT channel_version_pkey PRIMARY KEY (channel_id, version);

ALTER TABLE plant.columnstore_merged
    ADD CONSTRAINT columnstore_merged_pkey PRIMARY KEY (chunk);

ALTER TABLE plant.day_seal
    ADD CONSTRAINT day_seal_day_revision_key UNIQUE (day, revision);

ALTER TABLE plant.day_seal
    ADD CONSTRAINT day_seal_pkey PRIMARY KEY (serial);

ALTER TABLE plant.dropped
    ADD CONSTRAINT dropped_pkey PRIMARY KEY (what, retention);

ALTER TABLE plant.event_count_1m
    ADD CONSTRAINT event_count_1m_pkey PRIMARY KEY (bucket, type, channel_id);

ALTER TABLE plant.event
    ADD CONSTRAINT event_pkey PRIMARY KEY ("time", id);

ALTER TABLE plant.gap
    ADD CONSTRAINT gap_pkey PRIMARY KEY (id);

ALTER TABLE plant.gap
    ADD CONSTRAINT gap_source_id_channel_id_from_time_key UNIQUE NULLS NOT DISTINCT (source_id, channel_id, from_time);

ALTER TABLE plant.ingest_batch
    ADD CONSTRAINT ingest_batch_pkey PRIMARY KEY (source_id, sequence);

ALTER TABLE plant.installation
    ADD CONSTRAINT installation_pkey PRIMARY KEY (id);

ALTER TABLE plant.job_run
    ADD CONSTRAINT job_run_pkey PRIMARY KEY (id);

ALTER TABLE plant.migration
    ADD CONSTRAINT migration_pkey PRIMARY KEY (version);

ALTER TABLE plant.notification_delivery
    ADD CONSTRAINT notification_delivery_pkey PRIMARY KEY (notification_id, target);

ALTER TABLE plant.notification
    ADD CONSTRAINT notification_pkey PRIMARY KEY (id);

ALTER TABLE plant.packed_channel
    ADD CONSTRAINT packed_channel_pkey PRIMARY KEY (channel_id);

ALTER TABLE plant.packed_chunk
    ADD CONSTRAINT packed_chunk_pkey PRIMARY KEY (chunk);

ALTER TABLE plant.packed_until
    ADD CONSTRAINT packed_until_pkey PRIMARY KEY (one);

ALTER TABLE plant.presence
    ADD CONSTRAINT presence_pkey PRIMARY KEY (installation_id);

ALTER TABLE plant.quarantine
    ADD CONSTRAINT quarantine_pkey PRIMARY KEY (id);

ALTER TABLE plant.retention_class
    ADD CONSTRAINT retention_class_pkey PRIMARY KEY (name);

ALTER TABLE plant.rollup_1h
    ADD CONSTRAINT rollup_1h_pkey PRIMARY KEY (channel_id, bucket);

ALTER TABLE plant.rollup_1m_packed
    ADD CONSTRAINT rollup_1m_packed_pkey PRIMARY KEY (channel_id, day);

ALTER TABLE plant.rollup_1m
    ADD CONSTRAINT rollup_1m_pkey PRIMARY KEY (channel_id, bucket);

ALTER TABLE plant.rollup_chunk
    ADD CONSTRAINT rollup_chunk_pkey PRIMARY KEY (chunk);

ALTER TABLE plant.rollup_closed
    ADD CONSTRAINT rollup_closed_pkey PRIMARY KEY (one);

ALTER TABLE plant.rollup_dirty
    ADD CONSTRAINT rollup_dirty_pkey PRIMARY KEY (id);

ALTER TABLE plant.rollup_states_1h
    ADD CONSTRAINT rollup_states_1h_pkey PRIMARY KEY (channel_id, bucket, state);

ALTER TABLE plant.rollup_states_1m
    ADD CONSTRAINT rollup_states_1m_pkey PRIMARY KEY (channel_id, bucket, state);

ALTER TABLE plant.samples_packed
    ADD CONSTRAINT samples_packed_pkey PRIMARY KEY (channel_id, hour);

ALTER TABLE plant.samples_raw
    ADD CONSTRAINT samples_raw_pkey PRIMARY KEY (channel_id, "time");

ALTER TABLE plant.seal_digest
    ADD CONSTRAINT seal_digest_pkey PRIMARY KEY (day, channel_id, revision);

ALTER TABLE plant.seal_document
    ADD CONSTRAINT seal_document_pkey PRIMARY KEY (digest);

ALTER TABLE plant.seal_evidence
    ADD CONSTRAINT seal_evidence_pkey PRIMARY KEY (one);

ALTER TABLE plant.seal_key
    ADD CONSTRAINT seal_key_pkey PRIMARY KEY (fingerprint);

ALTER TABLE plant.seal_progress
    ADD CONSTRAINT seal_progress_pkey PRIMARY KEY (day);

ALTER TABLE plant.seal_work
    ADD CONSTRAINT seal_work_pkey PRIMARY KEY (day, channel_id, hour);

ALTER TABLE plant.setting
    ADD CONSTRAINT setting_pkey PRIMARY KEY (key);

ALTER TABLE plant.source
    ADD CONSTRAINT source_name_key UNIQUE (name);

ALTER TABLE plant.source
    ADD CONSTRAINT source_pkey PRIMARY KEY (id);

CREATE INDEX alarm_not_normal ON plant.alarm USING btree (state, since) WHERE (state <> 'normal'::text);

CREATE INDEX alarm_notice_queued ON plant.alarm_notice USING btree (queued_at);

CREATE INDEX alarm_notice_waiting ON plant.alarm_notice USING btree (queued_at) WHERE (outcome IS NULL);

CREATE INDEX channel_source ON plant.channel USING btree (source_id);

CREATE INDEX channel_unit ON plant.channel USING btree (regexp_replace(name, '/[^/]*$'::text, ''::text), id) INCLUDE (name) WHERE (retired_at IS NULL);

CREATE INDEX channel_version_name ON plant.channel_version USING btree (name);

CREATE UNIQUE INDEX channel_version_valid_from ON plant.channel_version USING btree (channel_id, valid_from);

CREATE INDEX event_channel ON plant.event USING btree (channel_id, "time" DESC);

CREATE INDEX event_count_1m_type ON plant.event_count_1m USING btree (type, channel_id, bucket DESC);

CREATE INDEX event_type ON plant.event USING btree (type, "time" DESC);

CREATE INDEX gap_open ON plant.gap USING btree (source_id) WHERE (to_time IS NULL);

CREATE INDEX gap_time ON plant.gap USING btree (from_time, to_time);

CREATE INDEX ingest_batch_written ON plant.ingest_batch USING brin (written_at);

CREATE INDEX job_run_job ON plant.job_run USING btree (job, started_at DESC);

CREATE INDEX notification_created ON plant.notification USING btree (created_at);

CREATE INDEX notification_delivery_waiting ON plant.notification_delivery USING btree (target, next_attempt_at) WHERE ((delivered_at IS NULL) AND (given_up_at IS NULL));

CREATE INDEX quarantine_at ON plant.quarantine USING btree (quarantined_at);

CREATE INDEX quarantine_received ON plant.quarantine USING btree (received_at);

CREATE INDEX rollup_dirty_open ON plant.rollup_dirty USING btree (from_time) WHERE (open_since IS NOT NULL);

CREATE INDEX rollup_dirty_to ON plant.rollup_dirty USING btree (to_time);

CREATE TRIGGER gaps_are_dirty_deleted AFTER DELETE ON plant.gap REFERENCING OLD TABLE AS former FOR EACH STATEMENT EXECUTE FUNCTION plant.gaps_are_dirty();

CREATE TRIGGER gaps_are_dirty_inserted AFTER INSERT ON plant.gap REFERENCING NEW TABLE AS fresh FOR EACH STATEMENT EXECUTE FUNCTION plant.gaps_are_dirty();

CREATE TRIGGER gaps_are_dirty_updated AFTER UPDATE ON plant.gap REFERENCING OLD TABLE AS former NEW TABLE AS fresh FOR EACH STATEMENT EXECUTE FUNCTION plant.gaps_are_dirty();

CREATE TRIGGER only_added BEFORE DELETE OR UPDATE OR TRUNCATE ON plant.day_seal FOR EACH STATEMENT EXECUTE FUNCTION plant.refuse_change();

CREATE TRIGGER only_added BEFORE DELETE OR UPDATE OR TRUNCATE ON plant.seal_digest FOR EACH STATEMENT EXECUTE FUNCTION plant.refuse_change();

CREATE TRIGGER only_added BEFORE DELETE OR UPDATE OR TRUNCATE ON plant.seal_document FOR EACH STATEMENT EXECUTE FUNCTION plant.refuse_change();

CREATE TRIGGER only_added BEFORE DELETE OR UPDATE OR TRUNCATE ON plant.seal_key FOR EACH STATEMENT EXECUTE FUNCTION plant.refuse_change();

CREATE TRIGGER record_change AFTER DELETE OR UPDATE ON plant.retention_class FOR EACH ROW EXECUTE FUNCTION plant._record_row_change('retention_changed');

CREATE TRIGGER record_change AFTER DELETE OR UPDATE ON plant.setting FOR EACH ROW WHEN ((old.installation_id IS NOT NULL)) EXECUTE FUNCTION plant._record_row_change('setting_changed');

CREATE TRIGGER record_change AFTER UPDATE OF name, kind, address, attributes, retired_at, installation_id ON plant.source FOR EACH ROW EXECUTE FUNCTION plant._record_row_change('source_changed');

CREATE TRIGGER version_changed AFTER UPDATE ON plant.channel REFERENCING OLD TABLE AS former NEW TABLE AS fresh FOR EACH STATEMENT EXECUTE FUNCTION plant._version_channels();

CREATE TRIGGER version_new AFTER INSERT ON plant.channel REFERENCING NEW TABLE AS fresh FOR EACH STATEMENT EXECUTE FUNCTION plant._version_channels();

ALTER TABLE plant.alarm_notice
    ADD CONSTRAINT alarm_notice_notification_id_fkey FOREIGN KEY (notification_id) REFERENCES plant.notification(id) ON DELETE SET NULL;

ALTER TABLE plant.channel
    ADD CONSTRAINT channel_source_id_fkey FOREIGN KEY (source_id) REFERENCES plant.source(id);

ALTER TABLE plant.day_seal
    ADD CONSTRAINT day_seal_document_fkey FOREIGN KEY (document) REFERENCES plant.seal_document(digest);

ALTER TABLE plant.day_seal
    ADD CONSTRAINT day_seal_key_fkey FOREIGN KEY (key) REFERENCES plant.seal_key(fingerprint);

ALTER TABLE plant.gap
    ADD CONSTRAINT gap_channel_id_fkey FOREIGN KEY (channel_id) REFERENCES plant.channel(id);

ALTER TABLE plant.gap
    ADD CONSTRAINT gap_source_id_fkey FOREIGN KEY (source_id) REFERENCES plant.source(id);

ALTER TABLE plant.notification_delivery
    ADD CONSTRAINT notification_delivery_notification_id_fkey FOREIGN KEY (notification_id) REFERENCES plant.notification(id) ON DELETE CASCADE;

ALTER TABLE plant.presence
    ADD CONSTRAINT presence_installation_id_fkey FOREIGN KEY (installation_id) REFERENCES plant.installation(id) ON DELETE CASCADE;

ALTER TABLE plant.retention_class
    ADD CONSTRAINT retention_class_installation_id_fkey FOREIGN KEY (installation_id) REFERENCES plant.installation(id);

ALTER TABLE plant.seal_digest
    ADD CONSTRAINT seal_digest_day_revision_fkey FOREIGN KEY (day, revision) REFERENCES plant.day_seal(day, revision);

ALTER TABLE plant.seal_key
    ADD CONSTRAINT seal_key_succeeds_fkey FOREIGN KEY (succeeds) REFERENCES plant.seal_key(fingerprint);

ALTER TABLE plant.setting
    ADD CONSTRAINT setting_installation_id_fkey FOREIGN KEY (installation_id) REFERENCES plant.installation(id);

ALTER TABLE plant.source
    ADD CONSTRAINT source_installation_id_fkey FOREIGN KEY (installation_id) REFERENCES plant.installation(id);

ALTER DEFAULT PRIVILEGES IN SCHEMA plant GRANT SELECT ON TABLES TO plant_ingest;
ALTER DEFAULT PRIVILEGES IN SCHEMA plant GRANT SELECT ON TABLES TO plant_reader;
ALTER DEFAULT PRIVILEGES IN SCHEMA plant GRANT SELECT,MAINTAIN ON TABLES TO plant_maintenance;

-- Sessions of pg_dump have no search path.
RESET search_path;
RESET check_function_bodies;

-- Minutes that are not made in their order. A minute that does not follow on its channel's newest row (0034) the writer
-- writes, too, where no later one is stored: it is dirty besides, so that it is made right whatever is carried into it, and
-- the next one can follow on it. So a writer that begins does not wait for maintenance, which may be late.

-- Which of the channels ids have minutes from a time on, or days that are packed: a channel's day is packed or it is not.
CREATE OR REPLACE FUNCTION plant.having_minutes(ids int[], "from" timestamptz) RETURNS int[]
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog
SET plan_cache_mode = force_custom_plan
SET jit = off
SET enable_seqscan = off
SET enable_bitmapscan = off
SET max_parallel_workers_per_gather = 0
AS $$
BEGIN
    RETURN ARRAY(
        SELECT c.id
        FROM unnest(ids) AS c (id)
        WHERE EXISTS (SELECT FROM plant.rollup_1m AS r WHERE r.channel_id = c.id AND r.bucket >= "from" OFFSET 0)
           OR EXISTS (SELECT FROM plant.rollup_1m_packed AS p
                      WHERE p.channel_id = c.id AND p.day >= plant.day_of("from") OFFSET 0));
END
$$;

-- What was deleted may have been carried into a minute, though its own has not been made yet, and has nothing to make then:
-- the next minute is made anew, as for gaps.
CREATE OR REPLACE FUNCTION plant.delete_samples(channels int[], "from" timestamptz, "to" timestamptz, why text) RETURNS bigint
LANGUAGE plpgsql
SET search_path = pg_catalog
SET plan_cache_mode = force_custom_plan
SET jit = off
AS $$
DECLARE
    from_rows   record;
    from_packed record;
    detail      jsonb;
    at          timestamptz;
BEGIN
    IF coalesce(btrim(why), '') = '' THEN
        RAISE EXCEPTION 'delete_samples: say why' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    -- Nobody packs or moves rows meanwhile.
    PERFORM pg_advisory_xact_lock(7361023400153);
    WITH gone AS (
        DELETE FROM plant.samples_raw AS r
        WHERE r.channel_id = ANY (channels) AND r.time >= "from" AND r.time < "to"
        RETURNING r.time, r.channel_id
    )
    SELECT count(*) AS n, min(g.time) AS first, max(g.time) AS last
    INTO from_rows
    FROM gone AS g
    WHERE g.time >= (SELECT u.until FROM plant.packed_until AS u) OR NOT plant.is_packed(g.channel_id, g.time);
    WITH cut AS (
        DELETE FROM plant.samples_packed AS p
        WHERE p.channel_id = ANY (channels) AND p.hour > "from" - INTERVAL '1 hour' AND p.hour < "to"
        RETURNING p
    ),
    sample AS MATERIALIZED (
        SELECT (c.p).channel_id, (c.p).hour, u.time, u.value, u.status, u.time >= "from" AND u.time < "to" AS gone
        FROM cut AS c
        CROSS JOIN LATERAL plant.unpack(c.p) AS u
    ),
    kept AS (
        INSERT INTO plant.samples_packed
        SELECT s.*
        FROM (
            SELECT k.channel_id, k.hour, array_agg(k.time ORDER BY k.time) AS times,
                   array_agg(k.value ORDER BY k.time) AS "values", array_agg(k.status ORDER BY k.time) AS statuses
            FROM sample AS k
            WHERE NOT k.gone
            GROUP BY k.channel_id, k.hour
        ) AS g
        CROSS JOIN LATERAL plant.pack(g.channel_id, g.hour, g.times, g."values", g.statuses) AS s
    )
    SELECT count(*) AS n, min(s.time) AS first, max(s.time) AS last INTO from_packed FROM sample AS s WHERE s.gone;
    IF from_rows.n + from_packed.n > 0 THEN
        INSERT INTO plant.rollup_dirty (from_time, to_time, channels, onward)
        VALUES (plant.minute_of(least(from_rows.first, from_packed.first)),
                plant.minute_of(greatest(from_rows.last, from_packed.last)) + INTERVAL '1 minute', channels, true);
    END IF;
    at := clock_timestamp();
    detail := jsonb_build_object('by', session_user, 'samples', from_rows.n + from_packed.n, 'channels', channels,
                                 'from', "from", 'to', "to");
    INSERT INTO plant.event (time, id, type, channel_id, text, detail)
    VALUES (at, hashtextextended(concat_ws(' ', at::text, why, detail::text), 8) & 9223372036854775807, 'deleted',
            CASE WHEN cardinality(channels) = 1 THEN channels[1] END, why, detail);
    RETURN from_rows.n + from_packed.n;
END
$$;

COMMENT ON COLUMN plant.rollup_closed.rows IS 'Rows of rollup_1m that they wrote and that need not be made anew.';

-- Refreshing holds up no writer. While a portion is made no minute is closed, and a portion was as much as a minute of all
-- channels, or an hour: where the machine is short of processors, and maintenance steps back, that took so long that a
-- writer gave up, and left its minutes to maintenance. Who came next, the writer or the next portion, was luck: the queue
-- of a row's lock is not fair, that of a table's is. So a portion has the table in mode SHARE, for which a writer's UPDATE
-- waits, and before which the next portion gives way.

-- As plant.refresh_portion, before what writers hold open; NULL also where a writer closes a minute, or wants to.
CREATE OR REPLACE FUNCTION plant.refresh_closed(closed timestamptz) RETURNS boolean
LANGUAGE plpgsql
SET search_path = pg_catalog
AS $$
BEGIN
    LOCK TABLE plant.rollup_closed IN SHARE MODE NOWAIT;
    -- Not with a snapshot from before a minute was closed: that is a serialization failure.
    PERFORM FROM plant.rollup_closed AS c FOR UPDATE NOWAIT;
    RETURN plant.refresh_portion(least(closed, plant.first_open()));
EXCEPTION WHEN serialization_failure OR lock_not_available THEN
    RETURN NULL;
END
$$;

-- Make an hour anew, from its minutes; of many channels a part of them, the others stay dirty.
CREATE OR REPLACE FUNCTION plant.refresh_hour(hour timestamptz) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog
SET plan_cache_mode = force_custom_plan
SET jit = off
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
    most     int := 2000; -- channels
    parts    CONSTANT int := 20;
    whole    boolean;
    ids      int[];
    discrete int[];
BEGIN
    WITH taken AS (
        DELETE FROM plant.rollup_dirty AS d WHERE d.hours AND d.from_time = hour AND d.to_time = hour + INTERVAL '1 hour'
        RETURNING d.channels
    )
    SELECT bool_or(t.channels IS NULL), array_agg(DISTINCT c.id) FILTER (WHERE c.id IS NOT NULL)
    INTO whole, ids
    FROM taken AS t
    LEFT JOIN LATERAL unnest(t.channels) AS c (id) ON true;
    IF whole THEN
        ids := plant.rollup_channels(ids);
    END IF;
    most := greatest(most, cardinality(ids) / parts);
    IF cardinality(ids) > most THEN
        INSERT INTO plant.rollup_dirty (from_time, to_time, channels, hours)
        VALUES (hour, hour + INTERVAL '1 hour', ids[most + 1:], true);
        ids := ids[:most];
    END IF;
    ids := plant.not_dropped(ids, '1m', hour);
    WITH fresh AS MATERIALIZED (
        SELECT m AS line, m.channel_id FROM plant.hours_of(ids, hour) AS m
    ),
    removed AS (
        DELETE FROM plant.rollup_1h AS r
        WHERE r.channel_id = ANY (ids) AND r.bucket = hour
          AND NOT EXISTS (SELECT FROM fresh AS f WHERE f.channel_id = r.channel_id)
    )
    INSERT INTO plant.rollup_1h SELECT (f.line).* FROM fresh AS f
    ON CONFLICT (channel_id, bucket) DO UPDATE
    SET n = excluded.n, min = excluded.min, max = excluded.max, sum = excluded.sum, area = excluded.area,
        first = excluded.first, last = excluded.last, known = excluded.known, first_time = excluded.first_time,
        last_time = excluded.last_time, n_good = excluded.n_good, holds = excluded.holds;
    discrete := ARRAY(SELECT c.id FROM plant.channel AS c WHERE c.kind = 'discrete' AND c.id = ANY (ids));
    IF discrete <> '{}' THEN
        DELETE FROM plant.rollup_states_1h AS r WHERE r.channel_id = ANY (discrete) AND r.bucket = hour;
        INSERT INTO plant.rollup_states_1h SELECT s.* FROM plant.state_hours_of(discrete, hour) AS s;
    END IF;
END
$$;

-- Make the minutes of some channels from one time to another anew, within a day, in the caller's snapshot. Dirty rows go,
-- or what they have within these bounds; those of any channel where everyone is given. A DELETE is planned over all
-- chunks, whatever its bounds: there is one only where something goes. Lists of channels are compared by hashes (= ANY of a
-- constant), not by && and <@, which compare each with each: a gap may have a whole source's. Of a minute that has samples
-- behind a gap nothing else is carried on because of it: the next one is left as it is.
CREATE OR REPLACE FUNCTION plant.refresh_minutes(ids int[], everyone int[], "from" timestamptz, "to" timestamptz) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog
SET plan_cache_mode = force_custom_plan
SET jit = off
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
    others   CONSTANT int[] := ARRAY(SELECT e.id FROM unnest(everyone) AS e (id) EXCEPT SELECT i.id FROM unnest(ids) AS i (id));
    whole    CONSTANT boolean := everyone IS NOT NULL AND others = '{}';
    discrete int[] := ARRAY(SELECT c.id FROM plant.channel AS c WHERE c.kind = 'discrete' AND c.id = ANY (ids));
    of_day   CONSTANT timestamptz := plant.day_of("from");
    gone_ids     int[];
    gone_buckets timestamptz[];
    onward_ids     int[];
    onward_minutes timestamptz[];
BEGIN
    WITH taken AS (
        DELETE FROM plant.rollup_dirty AS d
        WHERE d.from_time < "to" AND d.to_time > "from" AND NOT d.hours
          AND (EXISTS (SELECT FROM unnest(d.channels) AS c (id) WHERE c.id = ANY (ids))
               OR d.channels IS NULL AND everyone IS NOT NULL)
        RETURNING d.from_time, d.to_time, d.channels, d.onward
    ),
    rest AS (
        INSERT INTO plant.rollup_dirty (from_time, to_time, channels, onward)
        SELECT t.from_time, "from", t.channels, t.onward FROM taken AS t WHERE t.from_time < "from"
        UNION ALL
        SELECT "to", t.to_time, t.channels, t.onward FROM taken AS t WHERE t.to_time > "to"
        UNION ALL
        SELECT r.from_time, r.to_time, r.channels, r.onward
        FROM (
            SELECT DISTINCT greatest(t.from_time, "from") AS from_time, least(t.to_time, "to") AS to_time,
                   others AS channels, t.onward
            FROM taken AS t
            WHERE t.channels IS NULL
            UNION ALL
            SELECT greatest(t.from_time, "from"), least(t.to_time, "to"),
                   ARRAY(SELECT c.id FROM unnest(t.channels) AS c (id) WHERE c.id <> ALL (ids)), t.onward
            FROM taken AS t
            WHERE t.channels IS NOT NULL
        ) AS r
        WHERE r.channels <> '{}'
    ),
    onward AS (
        SELECT c.id, plant.hour_of(greatest(t.from_time, "from")) AS hour,
               least(t.to_time, "to") - INTERVAL '1 minute' AS minute
        FROM taken AS t
        CROSS JOIN unnest(t.channels) AS c (id)
        WHERE t.onward AND c.id = ANY (ids)
    ),
    hours AS (
        INSERT INTO plant.rollup_dirty (from_time, to_time, channels, hours)
        SELECT o.hour, o.hour + INTERVAL '1 hour', array_agg(DISTINCT o.id), true FROM onward AS o GROUP BY o.hour
    )
    SELECT array_agg(o.id), array_agg(o.minute)
    INTO onward_ids, onward_minutes
    FROM (SELECT o.id, max(o.minute) AS minute FROM onward AS o GROUP BY o.id) AS o;
    -- Where retention took raw data, minutes can't be made anew: they stay as they are. So do hours without their minutes.
    ids := plant.not_dropped(ids, 'raw', "from");
    discrete := ARRAY(SELECT i.id FROM unnest(ids) AS i (id) INTERSECT SELECT c.id FROM unnest(discrete) AS c (id));
    IF ids = '{}' THEN
        RETURN;
    END IF;
    -- Packed days become rows again.
    WITH unpacked AS (
        DELETE FROM plant.rollup_1m_packed AS p
        WHERE p.day = of_day AND p.channel_id = ANY (ids)
        RETURNING p
    )
    INSERT INTO plant.rollup_1m
    SELECT u.* FROM unpacked CROSS JOIN LATERAL plant.unpack_minutes(unpacked.p, '-infinity', 'infinity') AS u;

    WITH fresh AS MATERIALIZED (
        SELECT m AS line, m.channel_id, m.bucket FROM plant.minutes_of(ids, "from", "to") AS m
    ),
    old AS MATERIALIZED (
        SELECT r AS line, r.channel_id, r.bucket
        FROM unnest(ids) AS c (id)
        CROSS JOIN LATERAL (SELECT o.* FROM plant.rollup_1m AS o
                            WHERE o.channel_id = c.id AND o.bucket >= "from" AND o.bucket < "to" OFFSET 0) AS r
    ),
    gone AS (
        SELECT o.channel_id, o.bucket
        FROM old AS o
        WHERE NOT EXISTS (SELECT FROM fresh AS f WHERE f.channel_id = o.channel_id AND f.bucket = o.bucket)
    ),
    new AS (
        SELECT f.line, f.channel_id, f.bucket
        FROM fresh AS f
        LEFT JOIN old AS o ON o.channel_id = f.channel_id AND o.bucket = f.bucket
        WHERE o.line IS NULL OR o.line *<> f.line
    ),
    put AS (
        INSERT INTO plant.rollup_1m SELECT (n.line).* FROM new AS n
        ON CONFLICT (channel_id, bucket) DO UPDATE
        SET n = excluded.n, min = excluded.min, max = excluded.max, sum = excluded.sum, area = excluded.area,
            first = excluded.first, last = excluded.last, known = excluded.known, first_time = excluded.first_time,
            last_time = excluded.last_time, n_good = excluded.n_good, holds = excluded.holds
    ),
    -- What each channel carries out of here: where it is something else than before, the next minute is to be made anew.
    carried AS (
        SELECT coalesce(f.channel_id, o.channel_id) AS channel_id
        FROM (SELECT DISTINCT ON (f.channel_id) f.channel_id, f.line FROM fresh AS f ORDER BY f.channel_id, f.bucket DESC) AS f
        FULL JOIN (SELECT DISTINCT ON (o.channel_id) o.channel_id, o.line FROM old AS o ORDER BY o.channel_id, o.bucket DESC) AS o
            ON o.channel_id = f.channel_id
        WHERE float8send((f.line).last) IS DISTINCT FROM float8send((o.line).last)
           OR (f.line).last_time IS DISTINCT FROM (o.line).last_time OR (f.line).holds IS DISTINCT FROM (o.line).holds
        UNION
        -- Of a gap that begins behind the last minute with samples no row knows.
        SELECT o.id
        FROM unnest(onward_ids, onward_minutes) AS o (id, minute)
        WHERE NOT EXISTS (SELECT FROM fresh AS f WHERE f.channel_id = o.id AND f.bucket >= o.minute)
    ),
    next AS MATERIALIZED (
        SELECT a.bucket, array_agg(c.channel_id) AS channels
        FROM carried AS c
        CROSS JOIN LATERAL plant.minute_after(c.channel_id, "to") AS a
        GROUP BY a.bucket
    ),
    hours AS (
        SELECT plant.hour_of(m.bucket) AS hour, array_agg(DISTINCT m.channel_id) AS channels
        FROM (
            SELECT n.channel_id, n.bucket FROM new AS n
            UNION ALL
            SELECT g.channel_id, g.bucket FROM gone AS g
            UNION ALL
            -- An hour depends on what is carried into its first minute, though that may be the same itself.
            SELECT f.channel_id, f.bucket FROM fresh AS f WHERE NOT whole OR f.channel_id = ANY (discrete)
        ) AS m
        GROUP BY plant.hour_of(m.bucket)
        UNION ALL
        SELECT plant.hour_of(n.bucket), n.channels FROM next AS n
    ),
    marked AS (
        INSERT INTO plant.rollup_dirty (from_time, to_time, channels, hours)
        SELECT n.bucket, n.bucket + INTERVAL '1 minute', n.channels, false FROM next AS n
        UNION ALL
        SELECT h.hour, h.hour + INTERVAL '1 hour', CASE WHEN NOT whole OR cardinality(h.channels) <= 500 THEN h.channels END, true
        FROM hours AS h
    )
    SELECT array_agg(g.channel_id), array_agg(g.bucket) INTO gone_ids, gone_buckets FROM gone AS g;

    IF gone_ids IS NOT NULL THEN
        DELETE FROM plant.rollup_1m AS r USING unnest(gone_ids, gone_buckets) AS g (channel_id, bucket)
        WHERE r.channel_id = g.channel_id AND r.bucket = g.bucket AND r.bucket >= "from" AND r.bucket < "to";
    END IF;
    IF discrete <> '{}' THEN
        IF EXISTS (SELECT FROM plant.rollup_states_1m AS r
                   WHERE r.channel_id = ANY (discrete) AND r.bucket >= "from" AND r.bucket < "to") THEN
            DELETE FROM plant.rollup_states_1m AS r
            WHERE r.channel_id = ANY (discrete) AND r.bucket >= "from" AND r.bucket < "to";
        END IF;
        INSERT INTO plant.rollup_states_1m SELECT s.* FROM plant.state_minutes_of(discrete, "from", "to") AS s;
    END IF;
END
$$;

-- One portion of what is dirty, the newest first; false: nothing is, NULL: another session is at it. Minutes after
-- closed stay dirty. A portion is some 5,000 minutes of channels: a part of a minute of 20,000, and the minutes of an hour in
-- their order, as each carries a value into the next; of few channels a day. Dirty rows go together as long as at most
-- half of what they span is not dirty; some 200 minutes cost as much as a portion of their own. An hour is made when
-- nothing is dirty from which something could be carried into it.
CREATE OR REPLACE FUNCTION plant.refresh_portion(closed timestamptz) RETURNS boolean
LANGUAGE plpgsql
SET search_path = pg_catalog
SET plan_cache_mode = force_custom_plan
AS $$
DECLARE
    budget CONSTANT int := 5000;  -- minutes of channels
    parts  CONSTANT int := 20;    -- of a minute at most: what is left of it is written down again each time
    packed CONSTANT int := 50;    -- channels whose packed day becomes rows at once
    apart  CONSTANT int := 200;   -- minutes of channels that cost as much as a portion of their own
    minute   timestamptz; -- the newest dirty one, to be made from samples
    hour     timestamptz; -- to be made from minutes
    unit     tstzrange;
    row      record;
    area     float8 := 0; -- of what is dirty, in minutes of channels
    ids      int[] := '{}';
    more     int[];
    everyone int[];
    "from"   timestamptz;
    "to"     timestamptz;
BEGIN
    IF NOT pg_try_advisory_xact_lock(7361023400154) THEN
        RETURN NULL;
    END IF;
    minute := (SELECT least(d.to_time, closed) - INTERVAL '1 minute'
               FROM plant.rollup_dirty AS d
               WHERE NOT d.hours AND d.from_time < closed
               ORDER BY d.to_time DESC LIMIT 1);
    hour := (SELECT d.from_time
             FROM plant.rollup_dirty AS d
             WHERE d.hours AND d.to_time <= closed
             ORDER BY d.to_time DESC LIMIT 1);
    IF hour - plant.hold_limit() > minute OR minute IS NULL AND hour IS NOT NULL THEN
        PERFORM plant.refresh_hour(hour);
        RETURN true;
    ELSIF minute IS NULL THEN
        RETURN false;
    END IF;
    -- The first minutes of the newest hour that are dirty of any channel, and who else is dirty in them.
    WITH dirty AS MATERIALIZED (
        SELECT greatest(d.from_time, plant.hour_of(minute)) AS from_time,
               least(d.to_time, closed, plant.hour_of(minute) + INTERVAL '1 hour') AS to_time, d.channels
        FROM plant.rollup_dirty AS d
        WHERE NOT d.hours AND d.to_time > plant.hour_of(minute)
          AND d.from_time < least(closed, plant.hour_of(minute) + INTERVAL '1 hour')
    ),
    range AS (
        SELECT lower(r) AS from_time, upper(r) AS to_time
        FROM (SELECT range_agg(tstzrange(d.from_time, d.to_time)) AS ranges FROM dirty AS d WHERE d.channels IS NULL) AS a
        CROSS JOIN unnest(a.ranges) AS r
        ORDER BY 1 LIMIT 1
    )
    SELECT r.from_time, r.to_time,
           plant.rollup_channels(ARRAY(SELECT c.id FROM dirty AS d CROSS JOIN unnest(d.channels) AS c (id)
                                       WHERE d.to_time > r.from_time AND d.from_time < r.to_time))
    INTO "from", "to", everyone
    FROM range AS r;
    ids := coalesce(everyone, ids);
    -- Else what is dirty first on its day, or where that has more than a portion in its hour.
    IF everyone IS NULL THEN
        unit := tstzrange(plant.day_of(minute), plant.day_of(minute) + INTERVAL '24 hours');
        IF budget < (SELECT sum(cardinality(d.channels)
                                * date_part('epoch', least(d.to_time, closed, upper(unit)) - greatest(d.from_time, lower(unit))) / 60)
                     FROM plant.rollup_dirty AS d
                     WHERE NOT d.hours AND d.to_time > lower(unit) AND d.from_time < least(closed, upper(unit)) AND d.channels IS NOT NULL) THEN
            unit := tstzrange(plant.hour_of(minute), plant.hour_of(minute) + INTERVAL '1 hour');
        END IF;
        FOR row IN
            SELECT greatest(d.from_time, lower(unit)) AS from_time, least(d.to_time, closed, upper(unit)) AS to_time, d.channels
            FROM plant.rollup_dirty AS d
            WHERE NOT d.hours AND d.to_time > lower(unit) AND d.from_time < least(closed, upper(unit)) AND d.channels IS NOT NULL
            ORDER BY 1, 2
        LOOP
            area := area + cardinality(row.channels) * date_part('epoch', row.to_time - row.from_time) / 60;
            more := ids || ARRAY(SELECT c.id FROM unnest(row.channels) AS c (id) WHERE c.id <> ALL (ids));
            EXIT WHEN ids <> '{}'
                AND cardinality(more) * date_part('epoch', greatest("to", row.to_time) - "from") / 60 > least(budget, 2 * area + apart);
            ids := more;
            "from" := coalesce("from", row.from_time);
            "to" := greatest("to", row.to_time);
        END LOOP;
    END IF;
    IF cardinality(ids) > packed
       AND EXISTS (SELECT FROM plant.rollup_1m_packed AS p WHERE p.day = plant.day_of(minute) AND p.channel_id = ANY (ids)) THEN
        ids := ids[1:packed];
    END IF;
    ids := ids[1:greatest(budget, cardinality(ids) / parts)];
    "to" := least("to", "from" + INTERVAL '1 minute' * greatest(1, budget / greatest(1, cardinality(ids))));
    PERFORM plant.refresh_minutes(ids, everyone, "from", "to");
    RETURN true;
EXCEPTION WHEN serialization_failure OR unique_violation THEN
    RETURN NULL; -- another session ended what it was at between our snapshot and our lock
END
$$;

-- How many of the channels, from the first on, are packed in one transaction: what they have in the hour are some 100,000
-- samples. They are not counted: a channel's first minute of the hour tells, and where its hour is packed and rows are
-- late, what is packed, all of which is packed again.
CREATE OR REPLACE FUNCTION plant._channels_to_pack(channels int[], hour timestamptz) RETURNS int
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog
SET plan_cache_mode = force_custom_plan -- chunks are known to the planner by their times
SET jit = off
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
    target CONSTANT int := 100000; -- samples
    most   CONSTANT int := 1000;   -- channels
    until  CONSTANT timestamptz := plant.later(hour, INTERVAL '1 hour');
BEGIN
    RETURN (
        SELECT greatest(1, count(*) FILTER (WHERE s.sum <= target))
        FROM (
            SELECT sum(greatest(60 * m.n, p.n)) OVER (ORDER BY c.place) AS sum
            FROM unnest(channels[:most]) WITH ORDINALITY AS c (id, place)
            LEFT JOIN LATERAL (SELECT r.time FROM plant.samples_raw AS r
                               WHERE r.channel_id = c.id AND r.time >= _channels_to_pack.hour AND r.time < until
                               ORDER BY r.time LIMIT 1) AS f ON true
            CROSS JOIN LATERAL (SELECT count(*) AS n FROM plant.samples_raw AS r
                                WHERE r.channel_id = c.id AND r.time >= _channels_to_pack.hour AND r.time < until
                                  AND r.time >= f.time AND r.time < plant.later(f.time, INTERVAL '1 minute')) AS m
            LEFT JOIN LATERAL (SELECT o.n FROM plant.samples_packed AS o
                               WHERE o.channel_id = c.id AND o.hour = _channels_to_pack.hour) AS p ON true
        ) AS s
    );
END
$$;

-- The first whole hour, from one time to another within a chunk, of which the channels have rows in samples_raw, and the
-- channels that have: one look into the index each, for its oldest row.
CREATE OR REPLACE FUNCTION plant._hour_to_pack(ids int[], "from" timestamptz, "to" timestamptz, OUT hour timestamptz,
                                               OUT channels int[])
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog
SET plan_cache_mode = force_custom_plan -- chunks are known to the planner by their times
SET jit = off
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
    until CONSTANT timestamptz := plant.hour_of("to");
BEGIN
    SELECT o.hour, array_agg(o.id ORDER BY o.id)
    INTO hour, channels
    FROM (
        SELECT c.id, plant.hour_of(r.time) AS hour
        FROM unnest(ids) AS c (id)
        CROSS JOIN LATERAL (SELECT s.time FROM plant.samples_raw AS s
                            WHERE s.channel_id = c.id AND s.time >= "from" AND s.time < until
                            ORDER BY s.time LIMIT 1) AS r
    ) AS o
    GROUP BY o.hour
    ORDER BY o.hour
    LIMIT 1;
END
$$;

-- Pack the whole hours before t that have rows in samples_raw, oldest first, and drop the chunks that are empty then.
-- Columnstored chunks stay as they are; with only_begun, also those of days of which nothing is packed yet.
CREATE OR REPLACE PROCEDURE plant._pack_chunks(t timestamptz, only_begun boolean)
LANGUAGE plpgsql
AS $$
DECLARE
    day      record;
    all_ids  int[];
    channels int[]; -- that have rows of the hour
    hour     timestamptz;
    batch    int;
BEGIN
    FOR day IN SELECT k.* FROM plant._raw_chunks(t) AS k WHERE NOT k.columnstored AND (k.packed OR NOT only_begun) LOOP
        all_ids := plant.channels_in_raw(day.from_time, day.to_time);
        hour := day.from_time;
        LOOP
            SELECT f.hour, f.channels INTO hour, channels FROM plant._hour_to_pack(all_ids, hour, least(t, day.to_time)) AS f;
            EXIT WHEN hour IS NULL;
            WHILE channels <> '{}' LOOP
                batch := plant._channels_to_pack(channels, hour);
                IF plant.pack_hour(hour, channels[:batch]) IS NULL THEN
                    COMMIT;
                    RAISE NOTICE 'another session is compressing';
                    RETURN;
                END IF;
                COMMIT;
                channels := channels[batch + 1:];
            END LOOP;
            hour := hour + INTERVAL '1 hour';
        END LOOP;
        IF day.to_time <= t THEN
            PERFORM plant.drop_packed_chunk(day.chunk, day.from_time, day.to_time);
            COMMIT;
        END IF;
    END LOOP;
    DELETE FROM plant.packed_chunk AS c WHERE to_regclass(c.chunk) IS NULL;
    FOR day IN SELECT c.chunk, c.from_time, c.to_time FROM plant.packed_chunk AS c LOOP
        PERFORM plant.drop_packed_chunk(day.chunk, day.from_time, day.to_time);
        COMMIT;
    END LOOP;
END
$$;

-- Every some 100,000 rows are a transaction of their own, which moves them: whoever reads has each sample in the one
-- form or in the other. Ended at any moment it goes on from there when called again; two at once do no harm, the
-- second ends at once. Late rows of packed hours are merged by the next call.
CREATE OR REPLACE PROCEDURE plant.pack_before(t timestamptz)
LANGUAGE plpgsql
AS $$
BEGIN
    CALL plant._pack_chunks(t, false);
END
$$;
COMMENT ON PROCEDURE plant.pack_before IS 'Pack the whole hours before t, in small transactions that nobody waits for; columnstored days stay. CALL it outside a transaction.';
