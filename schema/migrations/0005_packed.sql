-- Closed hours in packed form: one row a channel and hour, some 1 byte a sample instead of 100, equal to the bit.
-- It needs nothing of TimescaleDB's Community edition. Read plant.samples, or plant.samples_between where channels and
-- times are known; plant.compress_before moves rows from samples_raw to here.
--
-- How an hour of n samples is written down. Sample i (from 0) has
--   time   = start + i * step + unit * t(i)                                      (µs; t is 0 where times are regular)
--   value  = float8s[i], else float4s[i], else (base + v(i)) / divisor           (rounded to float4 where single)
--   status = statuses[i], else status
-- t and v are whole numbers in planes of one byte: t0 holds the lowest bytes of all samples, t1 the next, and so on, as
-- many as the hour's range needs. Neighbours in a plane are alike, which is what lz4 lives from, and a plane is unpacked
-- by one unnest. A whole number divided by a power of ten gives a decimal value back to the bit (a product with 0.01
-- does not); what has no such form, NaN and its payload, infinities and -0 among it, stands in float8s as it is.

CREATE TABLE plant.samples_packed (
    hour       timestamptz NOT NULL,
    start      timestamptz NOT NULL,
    step       int8        NOT NULL CHECK (step > 0),
    base       float8      NOT NULL,
    divisor    float8      NOT NULL,
    channel_id int         NOT NULL,
    n          int         NOT NULL CHECK (n > 0),
    unit       int         NOT NULL,
    status     int         NOT NULL,
    single     boolean     NOT NULL,
    t0         "char"[] COMPRESSION lz4,
    t1         "char"[] COMPRESSION lz4,
    t2         "char"[] COMPRESSION lz4,
    t3         "char"[] COMPRESSION lz4,
    v0         "char"[] COMPRESSION lz4,
    v1         "char"[] COMPRESSION lz4,
    v2         "char"[] COMPRESSION lz4,
    v3         "char"[] COMPRESSION lz4,
    float4s    float4[] COMPRESSION lz4,
    float8s    float8[] COMPRESSION lz4,
    statuses   int[]    COMPRESSION lz4,
    PRIMARY KEY (channel_id, hour)
);
SELECT public.create_hypertable('plant.samples_packed', public.by_range('hour', INTERVAL '7 days'),
                                create_default_indexes => false);
COMMENT ON TABLE plant.samples_packed IS 'An hour of a channel a row; its head says what the columns mean. Read plant.samples or plant.samples_between.';
COMMENT ON COLUMN plant.samples_packed.hour IS 'UTC hour: its samples have hour <= time < hour + 1 h.';
COMMENT ON COLUMN plant.samples_packed.step IS 'µs.';
COMMENT ON COLUMN plant.samples_packed.unit IS 'µs: 1, 1000 or 1000000.';

-- Every packed sample is before until: of all channels (one row), and of each. Written in the transaction that packs, so
-- that every reader's snapshot has both or neither.
CREATE TABLE plant.packed_until (
    one   boolean     PRIMARY KEY DEFAULT true CHECK (one),
    until timestamptz NOT NULL DEFAULT '-infinity'
);
INSERT INTO plant.packed_until DEFAULT VALUES;
COMMENT ON TABLE plant.packed_until IS 'Rows of samples_raw before this may be late or replayed: they are compared with what is packed.';
CREATE TABLE plant.packed_channel (
    channel_id int         PRIMARY KEY,
    until      timestamptz NOT NULL
);
COMMENT ON TABLE plant.packed_channel IS 'The same by channel: while an hour is being packed, rows of channels whose turn has not come are no late ones.';

-- Chunks of samples_raw that were seen empty, and when: they go when nobody can have an older view of them.
CREATE TABLE plant.packed_chunk (
    chunk     text        PRIMARY KEY,
    from_time timestamptz NOT NULL,
    to_time   timestamptz NOT NULL,
    emptied   xid8        NOT NULL
);

---------------------------------------------------------------------------------------------------------- packed → rows

-- The samples of one row of samples_packed that may lie between two times; only those are decoded. Where times are
-- regular none lies outside, else some do. A query that calls it in FROM has its text in place of it.
CREATE FUNCTION plant.unpack(p plant.samples_packed, "from" timestamptz, "to" timestamptz)
RETURNS TABLE ("time" timestamptz, value float8, status int)
LANGUAGE sql STABLE PARALLEL SAFE ROWS 3600
BEGIN ATOMIC
    SELECT CASE WHEN (p).t0 IS NULL THEN u.line
                ELSE u.line + INTERVAL '1 microsecond' * ((p).unit * (
                    u.t0::int + coalesce(256 * u.t1::int, 0) + coalesce(65536 * u.t2::int, 0)
                    + coalesce(16777216 * u.t3::int::float8, 0))) END,
           coalesce(u.float8s, u.float4s,
                    CASE WHEN (p).single THEN (((p).base + coalesce(u.v0::int, 0) + coalesce(256 * u.v1::int, 0))
                                               / (p).divisor)::float4::float8
                         WHEN (p).v1 IS NULL THEN ((p).base + coalesce(u.v0::int, 0)) / (p).divisor
                         ELSE ((p).base + u.v0::int + 256 * u.v1::int + coalesce(65536 * u.v2::int, 0)
                               + coalesce(16777216 * u.v3::int::float8, 0)) / (p).divisor END),
           coalesce(u.statuses, (p).status)
    FROM (
        -- The first and the last sample, counted from 1. reach: how far t takes a time from its line, in units.
        SELECT greatest(1, 1 + ceil((date_part('epoch', "from" - (p).start) * 1e6 - r.reach * (p).unit) / (p).step))::int
                   AS i,
               least((p).n, ceil((date_part('epoch', "to" - (p).start) * 1e6 + r.reach * (p).unit) / (p).step))::int AS j
        FROM (SELECT CASE WHEN (p).t0 IS NULL THEN 0 WHEN (p).t1 IS NULL THEN 128 WHEN (p).t2 IS NULL THEN 32896
                          ELSE 2155905152 END::float8 AS reach) AS r
        OFFSET 0
    ) AS w
    CROSS JOIN LATERAL (
        -- All go in step, one sample at a time; one that is NULL gives NULLs.
        SELECT generate_series((p).start + INTERVAL '1 microsecond' * ((p).step * (w.i - 1)),
                               (p).start + INTERVAL '1 microsecond' * ((p).step * (w.j - 1)),
                               INTERVAL '1 microsecond' * (p).step) AS line,
               unnest((p).t0[w.i:w.j]) AS t0, unnest((p).t1[w.i:w.j]) AS t1,
               unnest((p).t2[w.i:w.j]) AS t2, unnest((p).t3[w.i:w.j]) AS t3,
               unnest((p).v0[w.i:w.j]) AS v0, unnest((p).v1[w.i:w.j]) AS v1,
               unnest((p).v2[w.i:w.j]) AS v2, unnest((p).v3[w.i:w.j]) AS v3,
               unnest((p).float4s[w.i:w.j]) AS float4s, unnest((p).float8s[w.i:w.j]) AS float8s,
               unnest((p).statuses[w.i:w.j]) AS statuses
    ) AS u;
END;

-- All of them.
CREATE FUNCTION plant.unpack(p plant.samples_packed)
RETURNS TABLE ("time" timestamptz, value float8, status int)
LANGUAGE sql STABLE PARALLEL SAFE ROWS 3600
BEGIN ATOMIC
    SELECT u.time, u.value, u.status FROM plant.unpack(p, '-infinity', 'infinity') AS u;
END;

---------------------------------------------------------------------------------------------------------- rows → packed

-- Fewest decimals k (0 to 9) with which value = whole number / 10^k to the bit; NULL: there is none.
-- The limits keep the whole number below 2^53, and NaN and the infinities out.
CREATE FUNCTION plant.decimals(value float8) RETURNS int
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN CASE
        WHEN NOT abs(value) < 9e15 THEN NULL
        WHEN value = 0 THEN CASE WHEN float8send(value) = '\x0000000000000000' THEN 0 END -- -0 is no whole number
        WHEN round(value) = value THEN 0
        WHEN NOT abs(value) < 9e13 THEN NULL
        WHEN round(value * 10) / 10 = value THEN 1
        WHEN round(value * 100) / 100 = value THEN 2
        WHEN NOT abs(value) < 9e11 THEN NULL
        WHEN round(value * 1000) / 1000 = value THEN 3
        WHEN round(value * 10000) / 10000 = value THEN 4
        WHEN NOT abs(value) < 9e9 THEN NULL
        WHEN round(value * 1e5) / 1e5 = value THEN 5
        WHEN round(value * 1e6) / 1e6 = value THEN 6
        WHEN NOT abs(value) < 9e6 THEN NULL
        WHEN round(value * 1e7) / 1e7 = value THEN 7
        WHEN round(value * 1e8) / 1e8 = value THEN 8
        WHEN round(value * 1e9) / 1e9 = value THEN 9
    END;

-- Whether the value is a float4 to the bit, as it comes from a device with 32-bit floats.
CREATE FUNCTION plant.is_float4(value float8) RETURNS boolean
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN CASE WHEN abs(value) BETWEEN 1e-30 AND 1e30 THEN value::float4::float8 = value
                ELSE float8send(value) = '\x0000000000000000' END;

-- The same as decimals for a value that was rounded to float4 after the division; k is 0 to 6.
CREATE FUNCTION plant.decimals_of_float4(value float8) RETURNS int
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN CASE
        WHEN NOT plant.is_float4(value) THEN NULL
        WHEN round(value) = value THEN CASE WHEN abs(value) < 9e15 THEN 0 END
        WHEN NOT abs(value) < 9e9 THEN NULL
        WHEN (round(value * 10) / 10)::float4 = value THEN 1
        WHEN (round(value * 100) / 100)::float4 = value THEN 2
        WHEN (round(value * 1000) / 1000)::float4 = value THEN 3
        WHEN (round(value * 1e4) / 1e4)::float4 = value THEN 4
        WHEN (round(value * 1e5) / 1e5)::float4 = value THEN 5
        WHEN (round(value * 1e6) / 1e6)::float4 = value THEN 6
    END;

-- Byte number place (0: the lowest) of whole numbers, less 128; NULL is 0.
CREATE FUNCTION plant.plane(numbers float8[], place int) RETURNS "char"[]
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN ARRAY(SELECT (((coalesce(u.number, 0)::int8 >> (8 * place)) & 255) - 128)::int::"char"
                 FROM unnest(numbers) AS u (number));

-- How many planes hold whole numbers from 0 to range; NULL: more than four.
CREATE FUNCTION plant.planes(range float8) RETURNS int
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN CASE WHEN range = 0 THEN 0 WHEN range < 256 THEN 1 WHEN range < 65536 THEN 2
                WHEN range < 16777216 THEN 3 WHEN range < 4294967296 THEN 4 END;

-- What the 128 that each plane is less adds up to.
CREATE FUNCTION plant.planes_middle(planes int) RETURNS float8
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN CASE planes WHEN 0 THEN 0 WHEN 1 THEN 128 WHEN 2 THEN 32896 WHEN 3 THEN 8421504 ELSE 2155905152 END;

-- The times (ascending, no two alike) into start, step, unit and the planes t.
CREATE FUNCTION plant.pack_times(INOUT p plant.samples_packed, times timestamptz[])
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

-- The values into base, divisor, single, the planes v, float4s and float8s.
CREATE FUNCTION plant.pack_values(INOUT p plant.samples_packed, "values" float8[])
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

-- The values as unpack gives them back.
CREATE FUNCTION plant.unpacked_values(p plant.samples_packed) RETURNS SETOF float8
    LANGUAGE sql STABLE PARALLEL SAFE
    BEGIN ATOMIC SELECT u.value FROM plant.unpack(p) AS u; END;

-- One hour of one channel: samples by ascending time, each time once.
CREATE FUNCTION plant.pack(channel_id int, hour timestamptz, times timestamptz[], "values" float8[], statuses int[])
RETURNS plant.samples_packed
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

--------------------------------------------------------------------------------------------------------------- reading

-- Whether a sample of the channel with this time is packed. Asked of rows before packed_until only.
CREATE FUNCTION plant.is_packed(channel int, at timestamptz) RETURNS boolean
-- STABLE: it sees what the query sees that asks. Its cost is that of the one row in a million for which it is called;
-- with more, the planner would start workers and compile for every look at samples_raw.
LANGUAGE plpgsql STABLE PARALLEL SAFE COST 1
AS $$
BEGIN
    IF at >= coalesce((SELECT c.until FROM plant.packed_channel AS c WHERE c.channel_id = channel), '-infinity') THEN
        RETURN false;
    END IF;
    RETURN EXISTS (SELECT
                   FROM plant.samples_packed AS p
                   CROSS JOIN LATERAL plant.unpack(p, at, at + INTERVAL '1 microsecond') AS u
                   WHERE p.channel_id = channel AND p.hour = date_trunc('hour', at, 'UTC') AND u.time = at);
END
$$;

CREATE OR REPLACE VIEW plant.samples AS
SELECT r.time, r.channel_id, r.value, r.status
FROM plant.samples_raw AS r
WHERE r.time >= (SELECT u.until FROM plant.packed_until AS u) OR NOT plant.is_packed(r.channel_id, r.time)
UNION ALL
SELECT u.time, p.channel_id, u.value, u.status
FROM plant.samples_packed AS p
CROSS JOIN LATERAL plant.unpack(p) AS u;
COMMENT ON VIEW plant.samples IS 'Every sample once, whatever form its hour is stored in. A condition on time reads every packed hour of the channels all the same, 0.2 µs a sample: where times are known, ask plant.samples_between.';

-- Samples with from <= time < to. Its text takes the place of the call, so that a query's own conditions reach the
-- tables; of what is packed only the channels' hours within the bounds are read.
CREATE FUNCTION plant.samples_between(channels int[], "from" timestamptz, "to" timestamptz)
RETURNS TABLE ("time" timestamptz, channel_id int, value float8, status int)
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT r.time, r.channel_id, r.value, r.status
    FROM plant.samples_raw AS r
    WHERE r.channel_id = ANY (channels) AND r.time >= "from" AND r.time < "to"
      AND (r.time >= (SELECT u.until FROM plant.packed_until AS u) OR NOT plant.is_packed(r.channel_id, r.time))
    UNION ALL
    SELECT u.time, p.channel_id, u.value, u.status
    FROM plant.samples_packed AS p
    CROSS JOIN LATERAL plant.unpack(p, "from", "to") AS u
    WHERE p.channel_id = ANY (channels) AND p.hour > "from" - INTERVAL '1 hour' AND p.hour < "to"
      -- Only hours of irregular times that are cut by a bound are looked at sample by sample.
      AND (p.t0 IS NULL OR p.hour >= "from" AND p.hour <= (SELECT "to" - INTERVAL '1 hour')
           OR u.time >= "from" AND u.time < "to");
END;
COMMENT ON FUNCTION plant.samples_between(int[], timestamptz, timestamptz) IS 'Samples of the channels with from <= time < to, each once; reads only their hours within the bounds.';

-- The same for all channels.
CREATE FUNCTION plant.samples_between("from" timestamptz, "to" timestamptz)
RETURNS TABLE ("time" timestamptz, channel_id int, value float8, status int)
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT r.time, r.channel_id, r.value, r.status
    FROM plant.samples_raw AS r
    WHERE r.time >= "from" AND r.time < "to"
      AND (r.time >= (SELECT u.until FROM plant.packed_until AS u) OR NOT plant.is_packed(r.channel_id, r.time))
    UNION ALL
    SELECT u.time, p.channel_id, u.value, u.status
    FROM plant.samples_packed AS p
    CROSS JOIN LATERAL plant.unpack(p, "from", "to") AS u
    WHERE p.hour > "from" - INTERVAL '1 hour' AND p.hour < "to"
      -- Only hours of irregular times that are cut by a bound are looked at sample by sample.
      AND (p.t0 IS NULL OR p.hour >= "from" AND p.hour <= (SELECT "to" - INTERVAL '1 hour')
           OR u.time >= "from" AND u.time < "to");
END;
COMMENT ON FUNCTION plant.samples_between(timestamptz, timestamptz) IS 'Samples of all channels with from <= time < to, each once; reads only the hours within the bounds.';

--------------------------------------------------------------------------------------------------------------- packing

-- Move the rows of some channels' hour from samples_raw into their packed hours, in the caller's transaction. Returns
-- how many rows left samples_raw; NULL: another session is packing, nothing was done.
--
-- Of two samples with one channel and time the packed one stays, as it was there first: an equal one is dropped, one
-- that differs becomes a conflict event, as in the writer. A row that comes while this runs is late for the next time.
CREATE FUNCTION plant.pack_hour(from_time timestamptz, channels int[]) RETURNS bigint
LANGUAGE plpgsql
SET search_path = pg_catalog
SET plan_cache_mode = force_custom_plan -- chunks are known to the planner by their times
SET jit = off
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

-- A positive 63-bit number from what a conflict event says: packing the same replay again is a no-op.
CREATE FUNCTION plant.conflict_id("time" timestamptz, channel_id int, detail jsonb) RETURNS bigint
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN hashtextextended(concat_ws(' ', date_part('epoch', "time")::text, channel_id::text, detail::text), 6)
           & 9223372036854775807;

-- The channels that have rows in samples_raw between two times, by one index look-up each.
CREATE FUNCTION plant.channels_in_raw(from_time timestamptz, to_time timestamptz) RETURNS int[]
LANGUAGE sql STABLE
SET search_path = pg_catalog
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

-- Drop an empty chunk of samples_raw, unless somebody may still see rows in it or is at it; says whether it is gone.
-- A snapshot of before the last rows moved would miss them in both forms: the chunk is marked first, and goes in a
-- later transaction, when all snapshots are younger than the mark. The lock is not waited for, as whoever comes then
-- would wait behind.
CREATE FUNCTION plant.drop_packed_chunk(name text, from_time timestamptz, to_time timestamptz) RETURNS boolean
LANGUAGE plpgsql
SET search_path = pg_catalog
SET lock_timeout = '20ms'
AS $$
DECLARE
    marked xid8;
    rows   boolean;
BEGIN
    IF NOT pg_try_advisory_xact_lock(7361023400153)
       OR EXISTS (SELECT FROM plant.samples_raw AS r
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
    BEGIN
        EXECUTE format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE NOWAIT', name);
        EXECUTE format('SELECT EXISTS (SELECT FROM %s)', name) INTO rows;
        IF NOT rows THEN
            EXECUTE format('DROP TABLE %s', name);
        END IF;
    EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
        RETURN false; -- the next time
    END;
    DELETE FROM plant.packed_chunk AS c WHERE c.chunk = name;
    RETURN NOT rows;
END
$$;

-- Pack all whole hours before t that have rows in samples_raw, oldest first, and drop the chunks that are empty then.
-- Every some 250,000 rows are a transaction of their own, which moves them: whoever reads has each sample in the one
-- form or in the other. Ended at any moment it goes on from there when called again; two at once do no harm, the
-- second ends at once. Late rows of packed hours are merged by the next call.
CREATE PROCEDURE plant.compress_before(t timestamptz)
LANGUAGE plpgsql
AS $$
DECLARE
    target   CONSTANT int := 250000; -- rows a transaction
    most     CONSTANT int := 1000;   -- channels a transaction
    chunk    record;
    channels int[];
    hour     timestamptz;
    done     int;
    batch    int := 32; -- channels, as many as made up the target the last time
    moved    bigint;
BEGIN
    FOR chunk IN
        SELECT format('%I.%I', k.chunk_schema, k.chunk_name) AS name, k.range_start, k.range_end
        FROM timescaledb_information.chunks AS k
        WHERE k.hypertable_schema = 'plant' AND k.hypertable_name = 'samples_raw' AND k.range_start < t
        ORDER BY k.range_start
    LOOP
        channels := plant.channels_in_raw(chunk.range_start, chunk.range_end);
        hour := chunk.range_start;
        WHILE hour + INTERVAL '1 hour' <= least(t, chunk.range_end) LOOP
            done := 0;
            WHILE done < cardinality(channels) LOOP
                moved := plant.pack_hour(hour, channels[done + 1 : done + batch]);
                COMMIT;
                IF moved IS NULL THEN
                    RAISE NOTICE 'another session is packing';
                    RETURN;
                END IF;
                done := done + batch;
                batch := greatest(1, least(most, 2 * batch, batch * target / greatest(moved, 1)));
            END LOOP;
            hour := hour + INTERVAL '1 hour';
        END LOOP;
        IF chunk.range_end <= t THEN
            PERFORM plant.drop_packed_chunk(chunk.name, chunk.range_start, chunk.range_end);
            COMMIT;
        END IF;
    END LOOP;
    DELETE FROM plant.packed_chunk AS c WHERE to_regclass(c.chunk) IS NULL;
    FOR chunk IN SELECT c.chunk AS name, c.from_time AS range_start, c.to_time AS range_end FROM plant.packed_chunk AS c LOOP
        PERFORM plant.drop_packed_chunk(chunk.name, chunk.range_start, chunk.range_end);
        COMMIT;
    END LOOP;
END
$$;
COMMENT ON PROCEDURE plant.compress_before IS 'Pack the whole hours before t, in small transactions that nobody waits for. CALL it outside a transaction.';

GRANT SELECT ON plant.samples_packed, plant.packed_until, plant.packed_channel TO plant_reader, plant_ingest;
GRANT ALL ON plant.samples_packed, plant.packed_until, plant.packed_channel, plant.packed_chunk TO plant_owner;
