-- Minutes of closed days in packed form, and the relations that people read: samples_1m, samples_1h.

-- Whole numbers over a power of ten in planes of bytes where values come back to the bit, else as they are: see 0005.
CREATE TYPE plant.packed_numbers AS (
    base float8, divisor float8, single boolean, v0 "char"[], v1 "char"[], v2 "char"[], v3 "char"[],
    float4s float4[], float8s float8[]
);

CREATE TABLE plant.rollup_1m_packed (
    day        timestamptz NOT NULL,
    channel_id int         NOT NULL,
    rows       int         NOT NULL,
    n          int,
    n_good     int,
    known      int,
    first_at   int,
    last_at    int,
    holds      int,
    minute_    int[] COMPRESSION lz4,
    n_         int[] COMPRESSION lz4,
    n_good_    int[] COMPRESSION lz4,
    known_     int[] COMPRESSION lz4,
    first_at_  int[] COMPRESSION lz4,
    last_at_   int[] COMPRESSION lz4,
    holds_     int[] COMPRESSION lz4,
    min        plant.packed_numbers COMPRESSION lz4,
    max        plant.packed_numbers COMPRESSION lz4,
    sum        plant.packed_numbers COMPRESSION lz4,
    area       plant.packed_numbers COMPRESSION lz4,
    first      plant.packed_numbers COMPRESSION lz4,
    last       plant.packed_numbers COMPRESSION lz4,
    PRIMARY KEY (channel_id, day)
);
SELECT public.create_hypertable('plant.rollup_1m_packed', public.by_range('day', INTERVAL '30 days'),
                                create_default_indexes => false);
COMMENT ON TABLE plant.rollup_1m_packed IS 'Minutes of closed days, a channel and day (UTC) a row. Read samples_1m or minutes_between.';
COMMENT ON COLUMN plant.rollup_1m_packed.minute_ IS 'Which minutes of the day (from 0) there are; NULL: all 1440. So with the others: where an array is NULL, all rows have what the column without underscore says. first_at and last_at: µs since the minute.';

CREATE FUNCTION plant.pack_numbers(numbers float8[]) RETURNS plant.packed_numbers
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

-- Those from place i to place j, from 1. What is compressed is opened once for all of them, not for each.
CREATE FUNCTION plant.unpack_numbers(p plant.packed_numbers, i int, j int) RETURNS float8[]
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT ARRAY(
        SELECT coalesce(u.float8s, u.float4s,
                        CASE WHEN h.single THEN ((h.base + coalesce(u.v0::int, 0) + coalesce(256 * u.v1::int, 0))
                                                 / h.divisor)::float4::float8
                             WHEN h.narrow THEN (h.base + coalesce(u.v0::int, 0)) / h.divisor
                             ELSE (h.base + u.v0::int + 256 * u.v1::int + coalesce(65536 * u.v2::int, 0)
                                   + coalesce(16777216 * u.v3::int::float8, 0)) / h.divisor END)
        FROM (SELECT (p).base AS base, (p).divisor AS divisor, (p).single AS single, (p).v1 IS NULL AS narrow OFFSET 0) AS h
        CROSS JOIN LATERAL (
            SELECT generate_series(i, j), unnest((p).v0[i:j]) AS v0, unnest((p).v1[i:j]) AS v1,
                   unnest((p).v2[i:j]) AS v2, unnest((p).v3[i:j]) AS v3,
                   unnest((p).float4s[i:j]) AS float4s, unnest((p).float8s[i:j]) AS float8s
        ) AS u);
END;

-- The rows of a packed day with from <= bucket < to.
CREATE FUNCTION plant.unpack_minutes(p plant.rollup_1m_packed, "from" timestamptz, "to" timestamptz)
RETURNS SETOF plant.rollup_1m
LANGUAGE sql STABLE PARALLEL SAFE ROWS 1440
BEGIN ATOMIC
    SELECT (p).channel_id, coalesce(u.n_, (p).n), b.bucket, CASE WHEN b.n_good > 0 THEN u.min END,
           CASE WHEN b.n_good > 0 THEN u.max END, u.sum, u.area, CASE WHEN b.n_good > 0 THEN u.first END,
           CASE WHEN b.n_good > 0 THEN u.last END, coalesce(u.known_, (p).known)::bigint,
           b.bucket + INTERVAL '1 microsecond' * coalesce(u.first_at_, (p).first_at),
           b.bucket + INTERVAL '1 microsecond' * coalesce(u.last_at_, (p).last_at),
           b.n_good, coalesce(u.holds_, (p).holds) = 1
    FROM (
        -- Which of all minutes are asked for; where some are missing all are looked at.
        SELECT CASE WHEN (p).minute_ IS NULL AND "from" > (p).day
                    THEN 1 + ceil(date_part('epoch', least("from", (p).day + INTERVAL '24 hours') - (p).day) / 60)
                    ELSE 1 END::int AS i,
               CASE WHEN (p).minute_ IS NULL AND "to" < (p).day + INTERVAL '24 hours'
                    THEN ceil(date_part('epoch', greatest("to", (p).day) - (p).day) / 60)
                    ELSE (p).rows END::int AS j
        OFFSET 0
    ) AS w
    CROSS JOIN LATERAL (
        SELECT generate_series(w.i - 1, w.j - 1) AS place, unnest((p).minute_) AS minute_,
               unnest((p).n_[w.i:w.j]) AS n_, unnest((p).n_good_[w.i:w.j]) AS n_good_,
               unnest((p).known_[w.i:w.j]) AS known_, unnest((p).first_at_[w.i:w.j]) AS first_at_,
               unnest((p).last_at_[w.i:w.j]) AS last_at_, unnest((p).holds_[w.i:w.j]) AS holds_,
               unnest(plant.unpack_numbers((p).min, w.i, w.j)) AS min,
               unnest(plant.unpack_numbers((p).max, w.i, w.j)) AS max,
               unnest(plant.unpack_numbers((p).sum, w.i, w.j)) AS sum,
               unnest(plant.unpack_numbers((p).area, w.i, w.j)) AS area,
               unnest(plant.unpack_numbers((p).first, w.i, w.j)) AS first,
               unnest(plant.unpack_numbers((p).last, w.i, w.j)) AS last
    ) AS u
    CROSS JOIN LATERAL (
        SELECT (p).day + INTERVAL '1 minute' * coalesce(u.minute_, u.place) AS bucket,
               coalesce(u.n_good_, (p).n_good) AS n_good
    ) AS b
    WHERE b.bucket >= "from" AND b.bucket < "to";
END;

-- A channel's rows of a day, packed.
CREATE FUNCTION plant.pack_minutes(channel int, day timestamptz) RETURNS plant.rollup_1m_packed
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog
SET plan_cache_mode = force_custom_plan
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

CREATE VIEW plant.rollup_minutes AS
SELECT r.* FROM plant.rollup_1m AS r
UNION ALL
SELECT u.* FROM plant.rollup_1m_packed AS p CROSS JOIN LATERAL plant.unpack_minutes(p, '-infinity', 'infinity') AS u;

CREATE VIEW plant.samples_1m AS
SELECT r.channel_id, r.bucket, r.n, r.n_good, r.min, r.max, plant.rollup_mean(r.sum, r.n_good, r.min, r.max) AS avg,
       plant.rollup_mean(r.area, r.known / 1e6::float8, -1e280, 1e280) AS twa, r.known / 1e6::float8 AS seconds,
       r.first, r.last, r.first_time, r.last_time, r.holds
FROM plant.rollup_minutes AS r;
COMMENT ON VIEW plant.samples_1m IS 'Minutes: samples, values that are neither Bad nor NaN, and the time-weighted average over the seconds in which the value is known. A condition on bucket reads every packed day of the channels all the same: where times are known, ask plant.minutes_between. The newest minutes, and those with a row in rollup_dirty, are yet to be made.';

CREATE VIEW plant.samples_1h AS
SELECT r.channel_id, r.bucket, r.n, r.n_good, r.min, r.max, plant.rollup_mean(r.sum, r.n_good, r.min, r.max) AS avg,
       plant.rollup_mean(r.area, r.known / 1e6::float8, -1e280, 1e280) AS twa, r.known / 1e6::float8 AS seconds,
       r.first, r.last, r.first_time, r.last_time, r.holds
FROM plant.rollup_1h AS r;
COMMENT ON VIEW plant.samples_1h IS 'Hours, as samples_1m.';

-- Minutes with from <= bucket < to, as they are stored; reads only the channels' days within the bounds.
CREATE FUNCTION plant.minutes_between(channels int[], "from" timestamptz, "to" timestamptz)
RETURNS SETOF plant.rollup_1m
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT r.* FROM plant.rollup_1m AS r
    WHERE r.channel_id = ANY (channels) AND r.bucket >= "from" AND r.bucket < "to"
    UNION ALL
    SELECT u.*
    FROM plant.rollup_1m_packed AS p
    CROSS JOIN LATERAL plant.unpack_minutes(p, "from", "to") AS u
    WHERE p.channel_id = ANY (channels) AND p.day > "from" - INTERVAL '24 hours' AND p.day < "to";
END;
COMMENT ON FUNCTION plant.minutes_between(int[], timestamptz, timestamptz) IS 'Rows of samples_1m by channels and times, with sums (sum, area, known) in place of averages.';

GRANT SELECT ON plant.rollup_1m_packed, plant.rollup_minutes, plant.samples_1m, plant.samples_1h
    TO plant_reader, plant_ingest;
GRANT ALL ON plant.rollup_1m_packed TO plant_owner;
