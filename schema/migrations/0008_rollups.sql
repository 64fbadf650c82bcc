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

GRANT INSERT ON plant.rollup_dirty TO plant_ingest;
GRANT SELECT ON plant.rollup_dirty, plant.rollup_1m, plant.rollup_1h, plant.rollup_states_1m, plant.rollup_states_1h,
                plant.states_1m, plant.states_1h TO plant_reader, plant_ingest;
GRANT ALL ON plant.rollup_dirty, plant.rollup_1m, plant.rollup_1h, plant.rollup_states_1m, plant.rollup_states_1h
    TO plant_owner;
