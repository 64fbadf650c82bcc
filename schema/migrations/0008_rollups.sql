-- Rollups of a minute and an hour: samples_1m, samples_1h, and the time in each state of discrete channels.
--
-- What a row says of its bucket (begin <= time < begin + width):
--   n                       samples
--   n_good                  those that are not Bad and not NaN; all other columns are of these
--   min, max, first, last   infinities count; first_time, last_time: when the first and the last of them came
--   avg                     mean of the samples, each counting alike
--   twa, seconds            time-weighted average, and the time that it covers
--   holds                   whether the last value still held when the bucket ended
-- A value holds until the next sample of its channel, until a recorded gap begins that was not backfilled, or for 24 h,
-- whichever comes first; a Bad sample, a NaN and a gap make the value unknown until the next sample, and that time counts
-- for nothing. So the first sample of a bucket is preceded by the value that was carried into it. A bucket without
-- samples has no row; in the average of its hour the time of an empty minute counts with the value that held.
-- Sums: values beyond +-1e280 (infinities among them) leave avg and twa NULL, those nearer to 0 than 1e-280 count as 0, so
-- that no sum fails. All sums are made in the order of time: the same samples give the same bits, whenever they came.
-- A sum that is a whole number of millionths but for what adding doubles loses is that number.
-- An hour is made of its minutes: counts, min, max, first and last are those of its samples; sums are sums of the
-- minutes' sums.
--
-- How they stay exact. Whoever changes samples (the writer, delete_samples) or what is known of gaps leaves a row in
-- rollup_dirty in the same transaction. refresh_rollups deletes the rows that its snapshot sees and makes their buckets
-- anew from the same snapshot (REPEATABLE READ): what is committed later has a dirty row of its own. Packing and retention
-- are no change. Where the last sample of a bucket becomes another, the next bucket that has samples becomes dirty too.

CREATE TABLE plant.rollup_dirty (
    id        bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    from_time timestamptz NOT NULL,
    to_time   timestamptz NOT NULL CHECK (to_time > from_time),
    channels  int[],
    hours     boolean     NOT NULL DEFAULT false,
    onward    boolean     NOT NULL DEFAULT false
);
CREATE INDEX rollup_dirty_to ON plant.rollup_dirty (to_time);
COMMENT ON TABLE plant.rollup_dirty IS 'Buckets that are to be made anew, with from_time <= begin < to_time, on whole minutes.';
COMMENT ON COLUMN plant.rollup_dirty.channels IS 'NULL: any.';
COMMENT ON COLUMN plant.rollup_dirty.hours IS 'false: minutes, from samples; true: one hour, from its minutes.';
COMMENT ON COLUMN plant.rollup_dirty.onward IS 'What is carried out of them is another value, though their last sample may be the same: a gap.';

CREATE TABLE plant.rollup_1m (
    channel_id int         NOT NULL,
    n          int         NOT NULL,
    bucket     timestamptz NOT NULL,
    min        float8,
    max        float8,
    sum        float8      NOT NULL,
    area       float8      NOT NULL,
    first      float8,
    last       float8,
    known      bigint      NOT NULL,
    first_time timestamptz,
    last_time  timestamptz,
    n_good     int         NOT NULL,
    holds      boolean     NOT NULL,
    PRIMARY KEY (channel_id, bucket)
);
SELECT public.create_hypertable('plant.rollup_1m', public.by_range('bucket', INTERVAL '1 day'),
                                create_default_indexes => false);
COMMENT ON TABLE plant.rollup_1m IS 'Minutes as they are made. Read samples_1m, or minutes_between where channels and times are known.';
COMMENT ON COLUMN plant.rollup_1m.known IS 'µs of which the value is known.';
COMMENT ON COLUMN plant.rollup_1m.area IS 'Value times seconds over the known time.';

CREATE TABLE plant.rollup_1h (LIKE plant.rollup_1m INCLUDING ALL);
SELECT public.create_hypertable('plant.rollup_1h', public.by_range('bucket', INTERVAL '30 days'),
                                create_default_indexes => false);
COMMENT ON TABLE plant.rollup_1h IS 'Hours as they are made. Read samples_1h.';

CREATE TABLE plant.rollup_states_1m (
    channel_id int         NOT NULL,
    n          int         NOT NULL,
    bucket     timestamptz NOT NULL,
    state      float8      NOT NULL,
    known      bigint      NOT NULL,
    PRIMARY KEY (channel_id, bucket, state)
);
SELECT public.create_hypertable('plant.rollup_states_1m', public.by_range('bucket', INTERVAL '7 days'),
                                create_default_indexes => false);
CREATE TABLE plant.rollup_states_1h (LIKE plant.rollup_states_1m INCLUDING ALL);
SELECT public.create_hypertable('plant.rollup_states_1h', public.by_range('bucket', INTERVAL '30 days'),
                                create_default_indexes => false);

CREATE VIEW plant.states_1m AS
SELECT s.channel_id, s.bucket, s.state, s.known / 1e6::float8 AS seconds, s.n FROM plant.rollup_states_1m AS s;
COMMENT ON VIEW plant.states_1m IS 'Discrete channels by minute: known time in each state, and how often it was entered (from another state, or out of the unknown).';
CREATE VIEW plant.states_1h AS
SELECT s.channel_id, s.bucket, s.state, s.known / 1e6::float8 AS seconds, s.n FROM plant.rollup_states_1h AS s;
COMMENT ON VIEW plant.states_1h IS 'The same by hour.';

---------------------------------------------------------------------------------------------------- samples → buckets

-- What a value adds to a sum.
CREATE FUNCTION plant.rollup_weight(value float8) RETURNS float8
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN CASE WHEN abs(value) BETWEEN 1e-280 AND 1e280 THEN value WHEN value IS NOT NULL THEN 0 END;

-- A sum of so many terms, of which none is larger than most: decimal readings have a decimal sum, which their doubles
-- miss by the rounding of each addition. It is nearer to the truth, and takes a third of the bytes in packed days.
CREATE FUNCTION plant.tidy(sum float8, terms float8, most float8) RETURNS float8
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN CASE WHEN abs(sum) < 9e9 AND abs(round(sum * 1e6) / 1e6 - sum) <= 2.3e-16 * terms * abs(sum) + 2.3e-16 * terms * most
                THEN round(sum * 1e6) / 1e6 + 0 ELSE sum END;

-- Mean of a bucket's values or their course; NULL where there is none, or values are too large for it.
CREATE FUNCTION plant.rollup_mean(sum float8, weight float8, min float8, max float8) RETURNS float8
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN CASE WHEN weight > 0 AND min >= -1e280 AND max <= 1e280 THEN sum / weight END;

-- How far a value is carried. 24 hours, not a day: a day of the session's time zone may have 23.
CREATE FUNCTION plant.hold_limit() RETURNS interval
    LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN INTERVAL '24 hours';

-- The last sample before a time, if it is not older than since. Packed hours are looked at only where the rows do not
-- reach beyond them.
CREATE FUNCTION plant.last_before(channel int, since timestamptz, before timestamptz)
RETURNS TABLE ("time" timestamptz, value float8, status int)
LANGUAGE sql STABLE PARALLEL SAFE ROWS 1
BEGIN ATOMIC
    SELECT g.time, g.value, g.status
    FROM (SELECT) AS one
    LEFT JOIN LATERAL (
        SELECT r.time, r.value, r.status
        FROM plant.samples_raw AS r
        WHERE r.channel_id = channel AND r.time >= since AND r.time < before
          AND (r.time >= (SELECT u.until FROM plant.packed_until AS u) OR NOT plant.is_packed(r.channel_id, r.time))
        ORDER BY r.time DESC LIMIT 1
    ) AS r ON true
    CROSS JOIN LATERAL (
        SELECT r.time, r.value, r.status WHERE r.time IS NOT NULL
        UNION ALL
        SELECT u.time, u.value, u.status
        FROM (
            -- Of the hour that the time cuts there may be nothing before it, of the one before there is.
            SELECT p
            FROM plant.samples_packed AS p
            WHERE p.channel_id = channel AND p.hour > since - INTERVAL '1 hour' AND p.hour < before
              AND (r.time IS NULL OR r.time < (SELECT u.until FROM plant.packed_until AS u))
            ORDER BY p.hour DESC LIMIT 2
        ) AS two
        CROSS JOIN LATERAL plant.unpack(two.p, since, before) AS u
        WHERE u.time >= since AND u.time < before
    ) AS g
    ORDER BY g.time DESC LIMIT 1;
END;

-- The course of a channel from one time to another: its samples (good: the value, NULL where it is Bad or NaN), before
-- them the last one of before, and where gaps begin (half a µs later, so behind a sample of that time). at: µs since from.
CREATE FUNCTION plant.course(channel int, gaps timestamptz[], since timestamptz, "from" timestamptz, "to" timestamptz)
RETURNS TABLE (at float8, good float8, sample int)
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT round(date_part('epoch', s.time - "from") * 1e6),
           CASE WHEN s.status >= 0 AND s.value <> 'NaN' THEN s.value END, 1
    FROM plant.samples_between(ARRAY[channel], "from", "to") AS s
    UNION ALL
    SELECT round(date_part('epoch', s.time - "from") * 1e6),
           CASE WHEN s.status >= 0 AND s.value <> 'NaN' THEN s.value END, NULL
    FROM plant.last_before(channel, since, "from") AS s
    UNION ALL
    SELECT round(date_part('epoch', g.g - "from") * 1e6) + 0.5, NULL, NULL
    FROM unnest(gaps) AS g (g);
END;

-- When recorded gaps begin, by channel; those that were backfilled or found to be none are no gaps.
CREATE FUNCTION plant.gap_begins(channels int[], "from" timestamptz, "to" timestamptz)
RETURNS TABLE (channel_id int, begins timestamptz[])
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT g.channel_id, array_agg(g.from_time)
    FROM plant.gap_channel AS g
    WHERE g.from_time >= "from" AND g.from_time < "to" AND g.backfilled_at IS NULL AND g.channel_id = ANY (channels)
    GROUP BY g.channel_id;
END;

-- The minutes of the channels, from their samples. Bounds on whole minutes.
CREATE FUNCTION plant.minutes_of(channels int[], "from" timestamptz, "to" timestamptz)
RETURNS SETOF plant.rollup_1m
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog
SET plan_cache_mode = force_custom_plan -- chunks are known to the planner by their times
SET jit = off
SET enable_seqscan = off -- channel by channel, by the key: a day of all channels is too much to look through
SET enable_bitmapscan = off
SET max_parallel_workers_per_gather = 0
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

-- The time in each state, minute by minute, from samples of discrete channels.
CREATE FUNCTION plant.state_minutes_of(channels int[], "from" timestamptz, "to" timestamptz)
RETURNS SETOF plant.rollup_states_1m
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog
SET plan_cache_mode = force_custom_plan
SET jit = off
SET enable_seqscan = off
SET enable_bitmapscan = off
SET max_parallel_workers_per_gather = 0
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

--------------------------------------------------------------------------------------------------------- packed days

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

------------------------------------------------------------------------------------------------------ minutes → hours

-- The next minute of a channel that has a row, no later than values are carried. A channel's day is packed or it is not:
-- only packed days on this side of the row are looked into.
CREATE FUNCTION plant.minute_after(channel int, at timestamptz) RETURNS TABLE (bucket timestamptz)
LANGUAGE sql STABLE PARALLEL SAFE ROWS 1
BEGIN ATOMIC
    SELECT coalesce(p.bucket, r.bucket)
    FROM (SELECT) AS one
    LEFT JOIN LATERAL (
        SELECT r.bucket
        FROM plant.rollup_1m AS r
        WHERE r.channel_id = channel AND r.bucket >= at AND r.bucket <= at + plant.hold_limit()
        ORDER BY r.bucket LIMIT 1
    ) AS r ON true
    LEFT JOIN LATERAL (
        SELECT u.bucket
        FROM plant.rollup_1m_packed AS p
        CROSS JOIN LATERAL plant.unpack_minutes(p, at, at + plant.hold_limit() + INTERVAL '1 minute') AS u
        WHERE p.channel_id = channel AND p.day > at - INTERVAL '24 hours'
          AND p.day <= coalesce(r.bucket, at + plant.hold_limit())
        ORDER BY u.bucket LIMIT 1
    ) AS p ON true
    WHERE coalesce(p.bucket, r.bucket) IS NOT NULL;
END;

-- The one before.
CREATE FUNCTION plant.minute_before(channel int, at timestamptz) RETURNS SETOF plant.rollup_1m
LANGUAGE sql STABLE PARALLEL SAFE ROWS 1
BEGIN ATOMIC
    SELECT g.*
    FROM (SELECT) AS one
    LEFT JOIN LATERAL (
        SELECT m AS line, m.bucket
        FROM plant.rollup_1m AS m
        WHERE m.channel_id = channel AND m.bucket >= at - plant.hold_limit() - INTERVAL '1 minute' AND m.bucket < at
        ORDER BY m.bucket DESC LIMIT 1
    ) AS r ON true
    CROSS JOIN LATERAL (
        SELECT (r.line).* WHERE r.bucket IS NOT NULL
        UNION ALL
        SELECT u.*
        FROM plant.rollup_1m_packed AS p
        CROSS JOIN LATERAL plant.unpack_minutes(p, at - plant.hold_limit() - INTERVAL '1 minute', at) AS u
        WHERE p.channel_id = channel AND p.day < at
          AND p.day > coalesce(r.bucket, at - plant.hold_limit() - INTERVAL '24 hours 1 minute')
    ) AS g
    ORDER BY g.bucket DESC LIMIT 1;
END;

-- When gaps begin in minutes that have no row; those that have one know of them.
CREATE FUNCTION plant.gap_begins_between_minutes(channels int[], "from" timestamptz, "to" timestamptz)
RETURNS TABLE (channel_id int, begins timestamptz[])
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT g.channel_id, array_agg(b.b)
    FROM plant.gap_begins(channels, "from", "to") AS g
    CROSS JOIN unnest(g.begins) AS b (b)
    CROSS JOIN LATERAL (SELECT date_bin(INTERVAL '1 minute', b.b, TIMESTAMPTZ '2000-01-01 00:00:00+00') AS minute) AS m
    WHERE NOT EXISTS (SELECT FROM plant.minutes_between(ARRAY[g.channel_id], m.minute, m.minute + INTERVAL '1 minute'))
    GROUP BY g.channel_id;
END;

-- The minutes of an hour, in their order; held: µs of the hour before one through which the last value before it (of
-- before) held. A gap's begin has no row. Times are µs since the hour began.
CREATE FUNCTION plant.minute_course(channel int, gaps timestamptz[], hour timestamptz)
RETURNS TABLE (until float8, line plant.rollup_1m, before float8, held float8, carries float8, carried_until float8)
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT v.until, v.line, v.before, v.held, v.carries, v.carried_until
    FROM (
        SELECT u.until, u.line, u.carries, u.carried_until, lag(u.carries) OVER course AS before,
               CASE WHEN lag(u.carries) OVER course IS NOT NULL
                    THEN greatest(0, least(u.begins, lag(u.carried_until) OVER course)
                                     - greatest(0, lag(u.until) OVER course)) END AS held
        FROM (
            SELECT b.begins, b.begins + 6e7 AS until, m AS line, CASE WHEN m.holds THEN m.last END AS carries,
                   round(date_part('epoch', m.last_time + plant.hold_limit() - hour) * 1e6) AS carried_until
            FROM plant.minutes_between(ARRAY[channel], hour, hour + INTERVAL '1 hour') AS m
            CROSS JOIN LATERAL (SELECT round(date_part('epoch', m.bucket - hour) * 1e6) AS begins) AS b
            UNION ALL
            SELECT b.begins, b.begins + 6e7, NULL, CASE WHEN m.holds THEN m.last END,
                   round(date_part('epoch', m.last_time + plant.hold_limit() - hour) * 1e6)
            FROM plant.minute_before(channel, hour) AS m
            CROSS JOIN LATERAL (SELECT round(date_part('epoch', m.bucket - hour) * 1e6) AS begins) AS b
            UNION ALL
            SELECT b.begins, b.begins + 0.5, NULL, NULL, NULL
            FROM unnest(gaps) AS g (g)
            CROSS JOIN LATERAL (SELECT round(date_part('epoch', g.g - hour) * 1e6) AS begins) AS b
        ) AS u
        WINDOW course AS (ORDER BY u.until)
    ) AS v
    WHERE v.until > 0.5;
END;

-- The hour of the channels, from its minutes.
CREATE FUNCTION plant.hours_of(channels int[], hour timestamptz)
RETURNS SETOF plant.rollup_1h
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog
SET plan_cache_mode = force_custom_plan
SET jit = off
SET enable_seqscan = off
SET enable_bitmapscan = off
SET max_parallel_workers_per_gather = 0
AS $$
BEGIN
    RETURN QUERY
    WITH gaps AS MATERIALIZED (
        SELECT g.channel_id, g.begins
        FROM plant.gap_begins_between_minutes(channels, hour - plant.hold_limit(), hour + INTERVAL '1 hour') AS g
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

-- The time in each state in the hour, from its minutes.
CREATE FUNCTION plant.state_hours_of(channels int[], hour timestamptz)
RETURNS SETOF plant.rollup_states_1h
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog
SET plan_cache_mode = force_custom_plan
SET jit = off
SET enable_seqscan = off
SET enable_bitmapscan = off
SET max_parallel_workers_per_gather = 0
AS $$
BEGIN
    RETURN QUERY
    WITH gaps AS MATERIALIZED (
        SELECT g.channel_id, g.begins
        FROM plant.gap_begins_between_minutes(channels, hour - plant.hold_limit(), hour + INTERVAL '1 hour') AS g
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
        WHERE r.channel_id = ANY (channels) AND r.bucket >= hour AND r.bucket < hour + INTERVAL '1 hour'
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
      AND EXISTS (SELECT FROM plant.minutes_between(ARRAY[p.id], hour, hour + INTERVAL '1 hour'))
    GROUP BY p.id, p.state
    HAVING sum(p.n) > 0 OR sum(p.held) > 0;
END
$$;

------------------------------------------------------------------------------------------------------------ refreshing

-- When the minute, hour or day (UTC) began that a time is in.
CREATE FUNCTION plant.minute_of(at timestamptz) RETURNS timestamptz
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN date_bin(INTERVAL '1 minute', at, TIMESTAMPTZ '2000-01-01 00:00:00+00');
CREATE FUNCTION plant.hour_of(at timestamptz) RETURNS timestamptz
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN date_bin(INTERVAL '1 hour', at, TIMESTAMPTZ '2000-01-01 00:00:00+00');
CREATE FUNCTION plant.day_of(at timestamptz) RETURNS timestamptz
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN date_bin(INTERVAL '24 hours', at, TIMESTAMPTZ '2000-01-01 00:00:00+00');

-- Where a gap begins, what is carried on from there becomes unknown; where it turns out to be none, known.
CREATE FUNCTION plant.gap_is_dirty() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER -- whoever writes gaps
SET search_path = pg_catalog
AS $$
BEGIN
    INSERT INTO plant.rollup_dirty (from_time, to_time, channels, onward)
    SELECT plant.minute_of(g.from_time), plant.minute_of(g.from_time) + INTERVAL '1 minute',
           CASE WHEN g.channel_id IS NULL THEN ARRAY(SELECT c.id FROM plant.channel AS c WHERE c.source_id = g.source_id)
                ELSE ARRAY[g.channel_id] END,
           true
    FROM (SELECT coalesce(NEW.from_time, OLD.from_time) AS from_time, coalesce(NEW.channel_id, OLD.channel_id) AS channel_id,
                 coalesce(NEW.source_id, OLD.source_id) AS source_id) AS g
    WHERE coalesce(NEW.to_time IS DISTINCT FROM NEW.from_time AND NEW.backfilled_at IS NULL, false)
          <> coalesce(OLD.to_time IS DISTINCT FROM OLD.from_time AND OLD.backfilled_at IS NULL, false);
    RETURN NULL;
END
$$;
CREATE TRIGGER gap_is_dirty AFTER INSERT OR UPDATE OR DELETE ON plant.gap
    FOR EACH ROW EXECUTE FUNCTION plant.gap_is_dirty();

-- Make the minutes of some channels from one time to another anew, within a day, in the caller's snapshot. Dirty rows go,
-- or what they have within these bounds; those of any channel where everyone is given.
CREATE FUNCTION plant.refresh_minutes(ids int[], everyone int[], "from" timestamptz, "to" timestamptz) RETURNS void
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
    forced   int[];
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
    removed AS (
        DELETE FROM plant.rollup_1m AS r USING gone AS g
        WHERE r.channel_id = g.channel_id AND r.bucket = g.bucket AND r.bucket >= "from" AND r.bucket < "to"
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
    )
    INSERT INTO plant.rollup_dirty (from_time, to_time, channels, hours)
    SELECT n.bucket, n.bucket + INTERVAL '1 minute', n.channels, false FROM next AS n
    UNION ALL
    SELECT h.hour, h.hour + INTERVAL '1 hour', CASE WHEN NOT whole OR cardinality(h.channels) <= 500 THEN h.channels END, true
    FROM hours AS h;

    IF discrete <> '{}' THEN
        DELETE FROM plant.rollup_states_1m AS r
        WHERE r.channel_id = ANY (discrete) AND r.bucket >= "from" AND r.bucket < "to";
        INSERT INTO plant.rollup_states_1m SELECT s.* FROM plant.state_minutes_of(discrete, "from", "to") AS s;
    END IF;
END
$$;

-- Make an hour anew, from its minutes.
CREATE FUNCTION plant.refresh_hour(hour timestamptz) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog
SET plan_cache_mode = force_custom_plan
SET jit = off
SET enable_seqscan = off
SET enable_bitmapscan = off
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

-- Every channel that may have samples, and some others.
CREATE FUNCTION plant.rollup_channels(others int[]) RETURNS int[]
    LANGUAGE sql STABLE
    RETURN ARRAY(SELECT c.id FROM plant.channel AS c WHERE c.kind <> 'text'
                 UNION SELECT o.id FROM unnest(others) AS o (id)
                 ORDER BY 1);

-- One portion of what is dirty, the newest first; false: nothing is, NULL: another session is at it. Minutes after
-- closed stay dirty. A portion is some 20,000 minutes of channels: a minute of 20,000 at once, and the minutes of an hour in
-- their order, as each carries a value into the next; of few channels a day.
CREATE FUNCTION plant.refresh_portion(closed timestamptz) RETURNS boolean
LANGUAGE plpgsql
SET search_path = pg_catalog
SET plan_cache_mode = force_custom_plan
AS $$
DECLARE
    budget CONSTANT int := 20000; -- minutes of channels
    packed CONSTANT int := 50;    -- channels whose packed day becomes rows at once
    minute   timestamptz; -- the newest dirty one, to be made from samples
    hour     timestamptz; -- to be made from minutes
    unit     tstzrange;
    ids      int[];
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
    IF hour > plant.hour_of(minute) OR minute IS NULL AND hour IS NOT NULL THEN
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
    -- Else all that is dirty on its day, or where that is more than a portion in its hour.
    IF everyone IS NULL THEN
        FOREACH unit IN ARRAY ARRAY[tstzrange(plant.day_of(minute), plant.day_of(minute) + INTERVAL '24 hours'),
                                    tstzrange(plant.hour_of(minute), plant.hour_of(minute) + INTERVAL '1 hour')] LOOP
            SELECT min(greatest(d.from_time, lower(unit))), max(least(d.to_time, closed, upper(unit))),
                   array_agg(DISTINCT c.id)
            INTO "from", "to", ids
            FROM plant.rollup_dirty AS d
            CROSS JOIN LATERAL unnest(d.channels) AS c (id)
            WHERE NOT d.hours AND d.to_time > lower(unit) AND d.from_time < least(closed, upper(unit));
            EXIT WHEN cardinality(ids) * date_part('epoch', "to" - "from") / 60 <= budget;
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

-- Make whatever is dirty anew: each portion in a transaction of its own, in which nobody who writes waits. Two at once do
-- no harm, the second ends at once. A minute is made when it has been over for some seconds, an hour likewise.
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
        done := plant.refresh_portion(plant.minute_of(clock_timestamp() - grace));
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
COMMENT ON PROCEDURE plant.refresh_rollups IS 'Make the rollups of all closed minutes and hours that are dirty, newest first, in small transactions. CALL it outside a transaction.';

--------------------------------------------------------------------------------------------------------- packing days

-- Chunks of rollup_1m that are being packed: the last channel that was, and when the chunk was seen empty; it goes when
-- nobody can have an older view of it.
CREATE TABLE plant.rollup_chunk (
    chunk     text PRIMARY KEY,
    packed_to int  NOT NULL,
    emptied   xid8
);

-- The next channels behind one that have rows in rollup_1m on a day, by one index look-up each.
CREATE FUNCTION plant.channels_in_minutes(day timestamptz, after int, most int) RETURNS int[]
LANGUAGE sql STABLE
SET search_path = pg_catalog
SET plan_cache_mode = force_custom_plan
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

-- Some channels' minutes of a day become packed ones; false: another session is at the rollups, nothing was done.
CREATE FUNCTION plant.pack_rollup_channels(of_day timestamptz, ids int[]) RETURNS boolean
LANGUAGE plpgsql
SET search_path = pg_catalog
SET plan_cache_mode = force_custom_plan
SET jit = off
SET enable_seqscan = off
SET enable_bitmapscan = off
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

-- Drop an empty chunk of rollup_1m, as plant.drop_packed_chunk does with those of samples_raw.
CREATE FUNCTION plant.drop_rollup_chunk(name text) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog
SET lock_timeout = '20ms'
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

-- Pack the minutes of whole days (UTC) before t, oldest first, 50 channels a transaction, so many transactions (NULL: all).
-- refresh_rollups does one at a time with days that are over for as long as data may be late: what is new goes before.
CREATE PROCEDURE plant.pack_rollups_before(t timestamptz, portions int DEFAULT NULL)
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
COMMENT ON PROCEDURE plant.pack_rollups_before IS 'Pack the minutes of whole days before t. CALL it outside a transaction.';

-------------------------------------------------------------------------------------------------------------- deleting

-- The one sanctioned way to delete samples: those of the channels with from <= time < to, in whatever form. Leaves an event
-- "deleted" with who, why and how many; returns how many.
CREATE FUNCTION plant.delete_samples(channels int[], "from" timestamptz, "to" timestamptz, why text) RETURNS bigint
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
COMMENT ON FUNCTION plant.delete_samples IS 'Delete samples of the channels with from <= time < to, and say so in an event: who, why, how many. A replay of what was deleted would land again.';
REVOKE EXECUTE ON FUNCTION plant.delete_samples FROM PUBLIC;
GRANT EXECUTE ON FUNCTION plant.delete_samples TO plant_owner;

---------------------------------------------------------------------------------------------------------------- charts

-- Width of a bucket: the least of those that people count in, with which there are no more than so many.
CREATE FUNCTION plant.series_width(span interval, points int) RETURNS interval
LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT INTERVAL '1 second' * coalesce(
        (SELECT min(w.seconds)
         FROM unnest(ARRAY[0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800,
                           3600, 7200, 10800, 21600, 43200]::float8[]) AS w (seconds)
         WHERE w.seconds >= date_part('epoch', span) / points),
        86400 * ceil(date_part('epoch', span) / points / 86400));
END;

-- Ranges made wider, so that their bounds are multiples of a width.
CREATE FUNCTION plant.widened(ranges tstzmultirange, width interval) RETURNS tstzmultirange
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN (SELECT coalesce(range_agg(tstzrange(
                date_bin(width, lower(r), TIMESTAMPTZ '2000-01-01 00:00:00+00'),
                CASE WHEN date_bin(width, upper(r), TIMESTAMPTZ '2000-01-01 00:00:00+00') = upper(r) THEN upper(r)
                     ELSE date_bin(width, upper(r), TIMESTAMPTZ '2000-01-01 00:00:00+00') + width END)), '{}')
            FROM unnest(ranges) AS r);

-- The whole multiples of a width in a range.
CREATE FUNCTION plant.whole_buckets(range tstzrange, width interval) RETURNS tstzmultirange
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN tstzmultirange(range) - plant.widened(
        tstzmultirange(tstzrange(lower(range) - INTERVAL '1 microsecond', lower(range)),
                       tstzrange(upper(range), upper(range) + INTERVAL '1 microsecond')), width);

CREATE TYPE plant.series_part AS (
    bucket timestamptz, at timestamptz, n bigint, n_good bigint, min float8, max float8, sum float8, first float8, last float8
);

-- A channel's course for a chart: at most points buckets (and one more, as they stand on whole multiples of their width)
-- over from <= time < to, with the extremes of exactly these samples. Read from hours, minutes or samples, whichever is the
-- coarsest that will do; what is dirty, and the first and last part of a bucket, always from what is finer. source says what
-- a bucket's coarsest part was. Bad samples and NaN count in n only; a bucket without samples is missing, so that a gap is
-- seen as one. avg is the mean of the samples (the time-weighted one stands in samples_1m and samples_1h).
CREATE FUNCTION plant.series(channel int, "from" timestamptz, "to" timestamptz, points int DEFAULT 1000)
RETURNS TABLE ("time" timestamptz, min float8, avg float8, max float8, n bigint, n_good bigint, first float8, last float8,
               source text)
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog
SET plan_cache_mode = force_custom_plan -- chunks are known to the planner by their times
SET jit = off
SET max_parallel_workers_per_gather = 0
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
COMMENT ON FUNCTION plant.series IS 'A channel for a chart: at most about so many buckets, with min and max of exactly the samples with from <= time < to, from hours, minutes or samples.';

-- What was written before this migration.
INSERT INTO plant.rollup_dirty (from_time, to_time)
SELECT k.range_start, k.range_end
FROM timescaledb_information.chunks AS k
WHERE k.hypertable_schema = 'plant' AND k.hypertable_name IN ('samples_raw', 'samples_packed');

GRANT INSERT ON plant.rollup_dirty TO plant_ingest;
GRANT SELECT ON plant.rollup_dirty, plant.rollup_chunk, plant.rollup_1m, plant.rollup_1h, plant.rollup_1m_packed, plant.rollup_states_1m,
                plant.rollup_states_1h, plant.rollup_minutes, plant.samples_1m, plant.samples_1h, plant.states_1m, plant.states_1h
    TO plant_reader, plant_ingest;
GRANT ALL ON plant.rollup_dirty, plant.rollup_chunk, plant.rollup_1m, plant.rollup_1h, plant.rollup_1m_packed, plant.rollup_states_1m,
             plant.rollup_states_1h TO plant_owner;
