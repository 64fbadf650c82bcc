-- Rollups by minute and hour: samples_1m, samples_1h, the time in each state of discrete channels, and increases of
-- counters.
--
-- Columns of a bucket (begin <= time < begin + width):
--   n                       number of samples
--   n_good                  samples that are neither Bad nor NaN; all other columns are computed from these
--   min, max, first, last   infinities count; first_time, last_time: times of the first and the last one
--   avg                     mean of the samples, with equal weights
--   twa, seconds            time-weighted average, and the time that it covers: neither that of unknown nor
--                           of too large values
--   holds                   whether the last value still held at the end of the bucket
-- A value holds until the next sample of its channel, until the start of a recorded gap that was not backfilled, or for
-- 24 h, whichever comes first. A Bad sample, a NaN and a gap make the value unknown until the next sample; that time
-- does not count. The value carried into a bucket holds until its first sample. A bucket without samples is not stored:
-- the views derive it from those around it (routines/rollups/held_buckets.sql); in the average of its hour, an empty
-- minute counts with the value that held.
-- Sums: values beyond +-1e280 (including infinities) make avg NULL and do not hold: until the next sample, the value is
-- as unknown as after a Bad one. Values closer to 0 than 1e-280 count as 0. So no sum fails. All sums are added in time
-- order: the same samples give the same bits, whenever they arrived. A sum that is a multiple of one millionth, except
-- for the rounding errors of adding doubles, is rounded to that multiple.
-- An hour is computed from its minutes: counts, min, max, first and last are those of its samples; sums are sums of the
-- sums of its minutes.
--
-- How rollups stay exact. Every transaction that changes samples (the writer, delete_samples) or gaps adds a row to
-- rollup_dirty. refresh_rollups deletes the rows that its snapshot sees and recomputes their buckets from the same
-- snapshot (REPEATABLE READ); later commits have dirty rows of their own. Packing and retention are not changes. If the
-- last sample of a bucket changes, the next bucket with samples becomes dirty too.
--
-- Minutes rolled up by the writer. The writer has the samples of a minute in memory. It writes those that arrived in
-- order as rows of rollup_1m when the minute is over, so nothing is recomputed. Each transaction that adds samples
-- still adds a row to rollup_dirty. If its writer holds the minute open, the row says since when, and refreshing skips
-- all minutes from there on. The writer closes a minute in one transaction: it deletes its own rows of rollup_dirty,
-- adds those of rollup_1m, and marks dirty what it cannot guarantee. If a writer does not return, its rows become
-- ordinary ones after plant.open_minute_limit(). Each installation has a writer, with a login of its own: none releases
-- the minutes of another.
-- A minute depends on the value carried into it. The writer knows what it wrote last, but samples also change otherwise
-- (late data, delete_samples, another writer), each time with a row in rollup_dirty. Therefore a channel's minute is
-- taken as exact only if it continues from the channel's newest stored row. Only refreshing changes the value carried
-- out of that row. Closing and refreshing exclude each other (rollup_closed): after a refresh either the minute no
-- longer continues from the row, or the refresh has found the new row and marked it dirty. A minute that does not
-- continue is also written, if no later one is stored, and is marked dirty as well: it is corrected later, and the next
-- minute can continue from it. So a new writer does not wait for maintenance, which may be late.
-- A gap that begins in a minute that the writer holds open makes the value unknown from there on, and nothing is
-- recomputed: its rows of rollup_dirty (routines/rollups/mark_gaps_dirty.sql) are deleted when the writer closes the
-- minute. Gaps that others write, that are retracted or backfilled, or that begin in closed minutes, make minutes
-- dirty. The writer may not know of those. Therefore, when it closes a later minute, it checks whether a gap began
-- between a channel's newest row and that minute.

CREATE TABLE plant.rollup_dirty (
    id         bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    from_time  timestamptz NOT NULL,
    to_time    timestamptz NOT NULL CHECK (to_time > from_time),
    channels   int[]       CONSTRAINT rollup_dirty_channels CHECK (channels <> '{}'),
    hours      boolean     NOT NULL DEFAULT false,
    onward     boolean     NOT NULL DEFAULT false,
    open_since timestamptz,
    held_by    text        DEFAULT session_user
);
CREATE INDEX rollup_dirty_to ON plant.rollup_dirty (to_time);
CREATE INDEX rollup_dirty_open ON plant.rollup_dirty (from_time) WHERE open_since IS NOT NULL;
COMMENT ON TABLE plant.rollup_dirty IS
    'Buckets to recompute: those that begin at from_time or later, but before to_time. Both are whole minutes.';
COMMENT ON COLUMN plant.rollup_dirty.channels IS 'NULL: all channels.';
COMMENT ON COLUMN plant.rollup_dirty.hours IS 'false: minutes, from samples. true: one hour, from its minutes.';
COMMENT ON COLUMN plant.rollup_dirty.onward IS
    'true: the value carried into the next bucket has changed, even if the last sample is the same, because of a gap.';
COMMENT ON COLUMN plant.rollup_dirty.open_since IS
    'When a writer opened this minute, which it still holds open. NULL: to be recomputed from samples.';
COMMENT ON COLUMN plant.rollup_dirty.held_by IS
    'If open_since is not NULL: the login of that writer. Each installation has its own.';
GRANT INSERT, DELETE, UPDATE (open_since) ON plant.rollup_dirty TO plant_ingest;
GRANT ALL ON plant.rollup_dirty TO plant_owner;

CREATE TABLE plant.rollup_closed (
    one     boolean     PRIMARY KEY DEFAULT true CHECK (one),
    minute  timestamptz NOT NULL,
    minutes bigint      NOT NULL DEFAULT 0,
    rows    bigint      NOT NULL DEFAULT 0
);
INSERT INTO plant.rollup_closed (minute) VALUES ('-infinity');
COMMENT ON TABLE plant.rollup_closed IS
    'The minute that a writer closed last. Closing and recomputing minutes locks this row.';
COMMENT ON COLUMN plant.rollup_closed.minutes IS 'Number of minutes that writers have closed with rows of their own.';
COMMENT ON COLUMN plant.rollup_closed.rows IS
    'Number of rows of rollup_1m that writers wrote and that need not be recomputed.';
GRANT UPDATE ON plant.rollup_closed TO plant_ingest;
GRANT ALL ON plant.rollup_closed TO plant_owner;

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
COMMENT ON TABLE plant.rollup_1m IS
    'Rollups by minute. Read samples_1m instead, or minutes_between if channels and times are known.';
COMMENT ON COLUMN plant.rollup_1m.known IS 'Time in which the value is known, in µs.';
COMMENT ON COLUMN plant.rollup_1m.area IS 'Integral of the value over the known time, in value × seconds.';

CREATE TABLE plant.rollup_1h (LIKE plant.rollup_1m INCLUDING ALL);
SELECT public.create_hypertable('plant.rollup_1h', public.by_range('bucket', INTERVAL '30 days'),
                                create_default_indexes => false);
COMMENT ON TABLE plant.rollup_1h IS 'Rollups by hour. Read samples_1h instead.';
GRANT INSERT ON plant.rollup_1m TO plant_ingest;
GRANT ALL ON plant.rollup_1m, plant.rollup_1h TO plant_owner;

-- Discrete channels: the time (known, µs) in each state, and how often (n) it was entered.
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
GRANT INSERT ON plant.rollup_states_1m TO plant_ingest;
GRANT ALL ON plant.rollup_states_1m, plant.rollup_states_1h TO plant_owner;

-- Counters: the increase within a bucket, from its first to its last reading, where one is lower than that before it.
-- Of the other buckets it is last - first, so nothing is stored. The increase from one bucket to the next is that of
-- the later one, which the views derive (routines/rollups/increases_between.sql): so no bucket depends on another.
CREATE TABLE plant.rollup_increases_1m (
    channel_id int         NOT NULL,
    bucket     timestamptz NOT NULL,
    increase   float8      NOT NULL,
    PRIMARY KEY (channel_id, bucket)
);
SELECT public.create_hypertable('plant.rollup_increases_1m', public.by_range('bucket', INTERVAL '30 days'),
                                create_default_indexes => false);
CREATE TABLE plant.rollup_increases_1h (LIKE plant.rollup_increases_1m INCLUDING ALL);
SELECT public.create_hypertable('plant.rollup_increases_1h', public.by_range('bucket', INTERVAL '30 days'),
                                create_default_indexes => false);
GRANT INSERT ON plant.rollup_increases_1m TO plant_ingest;
GRANT ALL ON plant.rollup_increases_1m, plant.rollup_increases_1h TO plant_owner;

-- Integers over a power of ten in byte planes if they restore the values to the bit, else the values unchanged: see the
-- comment on samples_packed in samples.sql.
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
COMMENT ON TABLE plant.rollup_1m_packed IS
    'Minutes of closed days, one row per channel and day (UTC). Read samples_1m instead, or minutes_between.';
COMMENT ON COLUMN plant.rollup_1m_packed.minute_ IS
    'The minutes of the day (from 0) that exist. NULL: all 1440. In the same way, where another array is NULL, all '
    'minutes have the value of the column without the underscore. '
    'first_at and last_at are µs since the start of the minute.';
GRANT ALL ON plant.rollup_1m_packed TO plant_owner;

-- Chunks of rollup_1m that are being packed: the last packed channel, and when the chunk was found empty. It is dropped
-- once no older snapshot exists.
CREATE TABLE plant.rollup_chunk (
    chunk     text PRIMARY KEY,
    packed_to int  NOT NULL,
    emptied   xid8
);
GRANT ALL ON plant.rollup_chunk TO plant_owner;

-- Part of a bucket of plant.series, from hours, minutes or samples.
CREATE TYPE plant.series_part AS (
    bucket timestamptz, at timestamptz, n bigint, n_good bigint, min float8, max float8, sum float8, first float8,
    last float8
);
