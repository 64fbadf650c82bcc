-- Samples: rows, and closed hours in packed form.

-- This order of columns needs no padding: 24 bytes of data per row.
CREATE TABLE plant.samples_raw (
    time       timestamptz NOT NULL,
    value      float8      NOT NULL,
    channel_id int         NOT NULL,
    status     int         NOT NULL,
    PRIMARY KEY (channel_id, time)
);
SELECT public.create_hypertable('plant.samples_raw', public.by_range('time', INTERVAL '1 day'),
                                create_default_indexes => false);
COMMENT ON TABLE plant.samples_raw IS 'Rows written by the writer. Read the view plant.samples instead.';
COMMENT ON COLUMN plant.samples_raw.status IS
    'OPC UA StatusCode, the same 32 bits as a signed integer: Bad is negative.';
GRANT INSERT ON plant.samples_raw TO plant_ingest;
GRANT ALL ON plant.samples_raw TO plant_owner;

-- Closed hours in packed form: one row per channel and hour, about 1 byte per sample instead of 100, without loss of a
-- bit. This form does not need TimescaleDB's Community edition. Read plant.samples, or plant.samples_between if
-- channels and times are known; ops/maintenance/packing.py moves rows from samples_raw to this table.
--
-- Encoding of an hour with n samples. Sample i (from 0) has
--   time   = start + i * step + unit * t(i)                                      (µs; t is 0 where times are regular)
--   value  = float8s[i], else float4s[i], else (base + v(i)) / divisor           (rounded to float4 where single)
--   status = statuses[i], else status
-- t and v are integers in planes of one byte: t0 holds the lowest byte of all samples, t1 the next, and so on, as many
-- as the range of the hour needs. Neighbours in a plane are similar, so lz4 compresses them well, and one unnest
-- decodes a plane. An integer divided by a power of ten restores a decimal value to the bit (multiplying by 0.01 does
-- not). Values without such a form, such as NaN with its payload, infinities and -0, are stored in float8s unchanged.
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
SELECT public.create_hypertable('plant.samples_packed', public.by_range('hour', INTERVAL '1 day'),
                                create_default_indexes => false);
COMMENT ON TABLE plant.samples_packed IS
    'One row per channel and hour. schema/tables/samples.sql describes the columns. Read plant.samples instead, or '
    'plant.samples_between.';
COMMENT ON COLUMN plant.samples_packed.hour IS 'Start of the hour, in UTC. Its samples have hour <= time < hour + 1 h.';
COMMENT ON COLUMN plant.samples_packed.step IS
    'Interval between samples, in µs. t0 to t3 contain the deviations from it.';
COMMENT ON COLUMN plant.samples_packed.unit IS 'Resolution of the times, in µs: 1, 1000 or 1000000.';

-- Every packed sample is before until: for all channels (one row), and per channel. The transaction that packs also
-- updates these, so a reader's snapshot has both or neither.
CREATE TABLE plant.packed_until (
    one   boolean     PRIMARY KEY DEFAULT true CHECK (one),
    until timestamptz NOT NULL DEFAULT '-infinity'
);
INSERT INTO plant.packed_until DEFAULT VALUES;
COMMENT ON TABLE plant.packed_until IS
    'All packed samples are before this time. Rows of samples_raw before it may be late or replayed, and are compared '
    'with packed samples.';
CREATE TABLE plant.packed_channel (
    channel_id int         PRIMARY KEY,
    until      timestamptz NOT NULL
);
COMMENT ON TABLE plant.packed_channel IS
    'The same as packed_until, by channel. While an hour is being packed, rows of channels that are not packed yet '
    'are not late.';

-- Chunks of samples_raw found empty, and when. They are dropped once no older snapshot exists.
CREATE TABLE plant.packed_chunk (
    chunk     text        PRIMARY KEY,
    from_time timestamptz NOT NULL,
    to_time   timestamptz NOT NULL,
    emptied   xid8        NOT NULL
);
GRANT ALL ON plant.samples_packed, plant.packed_until, plant.packed_channel, plant.packed_chunk TO plant_owner;

-- Columnstored chunks whose late rows were merged, and when. They count as partly columnstored until no older snapshot
-- exists (routines/packing/_columnstore_chunk.community.sql).
CREATE TABLE plant.columnstore_merged (
    chunk  text PRIMARY KEY,
    merged xid8 NOT NULL
);
GRANT ALL ON plant.columnstore_merged TO plant_owner;
