-- The tables of a plant: what is measured where (source, channel), what was measured (samples_raw, event), what is
-- known to be missing (gap), and what arrived when (ingest_batch).

CREATE SCHEMA IF NOT EXISTS plant;

CREATE TABLE plant.setting (
    key   text PRIMARY KEY,
    value text NOT NULL
);
COMMENT ON TABLE plant.setting IS 'Facts about this database: edition (apache or community), timescaledb_version.';

CREATE TABLE plant.source (
    id          int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name        text NOT NULL UNIQUE,
    kind        text NOT NULL CHECK (kind IN ('opcua', 'modbus', 'push')),
    address     text NOT NULL,
    state       text NOT NULL DEFAULT 'unknown',
    state_since timestamptz,
    reason      text,
    attributes  jsonb NOT NULL DEFAULT '{}',
    retired_at  timestamptz
);
COMMENT ON TABLE plant.source IS 'One endpoint that channels are read from. state is what its collector said last.';
COMMENT ON COLUMN plant.source.retired_at IS 'Since when the configuration no longer names it; its samples stay.';

CREATE TABLE plant.channel (
    id          int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name        text NOT NULL UNIQUE,
    source_id   int NOT NULL REFERENCES plant.source (id),
    address     text NOT NULL,
    kind        text NOT NULL CHECK (kind IN ('analog', 'discrete', 'counter', 'text')),
    unit        text NOT NULL DEFAULT '',
    range_lo    float8,
    range_hi    float8,
    deadband    float8 NOT NULL DEFAULT 0,
    description text NOT NULL DEFAULT '',
    attributes  jsonb NOT NULL DEFAULT '{}',
    retired_at  timestamptz
);
CREATE INDEX channel_source ON plant.channel (source_id);
COMMENT ON TABLE plant.channel IS 'One tag. name is a slash path: plant area, unit, quantity. An id is never given twice.';
COMMENT ON COLUMN plant.channel.address IS 'OPC UA: node id. Modbus: table:register, from 0.';

-- Columns stand in this order because it packs without padding: 24 bytes of data a row.
CREATE TABLE plant.samples_raw (
    time       timestamptz NOT NULL,
    value      float8      NOT NULL,
    channel_id int         NOT NULL,
    status     int         NOT NULL,
    PRIMARY KEY (channel_id, time)
);
SELECT public.create_hypertable('plant.samples_raw', public.by_range('time', INTERVAL '1 day'),
                                create_default_indexes => false);
COMMENT ON TABLE plant.samples_raw IS 'What the writer fills. Read the view samples.';
COMMENT ON COLUMN plant.samples_raw.status IS 'OPC UA StatusCode, the same 32 bits as a signed integer: Bad is negative.';

CREATE TABLE plant.event (
    time       timestamptz NOT NULL,
    id         bigint      NOT NULL,
    type       text        NOT NULL,
    source_id  int,
    channel_id int,
    status     int,
    text       text,
    detail     jsonb       NOT NULL DEFAULT '{}',
    PRIMARY KEY (time, id)
);
SELECT public.create_hypertable('plant.event', public.by_range('time', INTERVAL '7 days'),
                                create_default_indexes => false);
CREATE INDEX event_channel ON plant.event (channel_id, time DESC);
CREATE INDEX event_type ON plant.event (type, time DESC);
COMMENT ON TABLE plant.event IS 'What is not a number, or happens now and then. id is a hash of the event: a replay is a no-op.';

CREATE TABLE plant.gap (
    id            bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    source_id     int NOT NULL REFERENCES plant.source (id),
    channel_id    int REFERENCES plant.channel (id),
    from_time     timestamptz NOT NULL,
    to_time       timestamptz CHECK (to_time >= from_time),
    reason        text NOT NULL,
    backfilled_at timestamptz,
    UNIQUE NULLS NOT DISTINCT (source_id, channel_id, from_time)
);
COMMENT ON TABLE plant.gap IS 'An interval that is known to be missing. No channel: the whole source. No to_time: still open.';

CREATE TABLE plant.ingest_batch (
    source_id   int         NOT NULL,
    sequence    bigint      NOT NULL,
    kind        text        NOT NULL CHECK (kind IN ('samples', 'events')),
    rows        int         NOT NULL,
    first_time  timestamptz NOT NULL,
    last_time   timestamptz NOT NULL,
    received_at timestamptz NOT NULL,
    written_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (source_id, sequence)
);
CREATE INDEX ingest_batch_written ON plant.ingest_batch USING brin (written_at);
COMMENT ON TABLE plant.ingest_batch IS 'One row a committed spool batch: evidence of arrival, lag, and the key that makes a replay a no-op.';

-- Status codes (OPC 10000-4, 7.39): the two highest bits are the severity.
CREATE FUNCTION plant.quality(status int) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE STRICT
    RETURN CASE (status >> 30) & 3 WHEN 0 THEN 'good' WHEN 1 THEN 'uncertain' ELSE 'bad' END;

CREATE FUNCTION plant.status_hex(status int) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE STRICT
    RETURN '0x' || upper(lpad(to_hex(status), 8, '0'));

CREATE VIEW plant.samples AS
SELECT s.time, s.channel_id, s.value, s.status
FROM plant.samples_raw AS s;
COMMENT ON VIEW plant.samples IS 'Every sample, whatever form its day is stored in.';

CREATE VIEW plant.samples_named AS
SELECT s.time, c.name, s.value, c.unit, plant.quality(s.status) AS quality, s.status, s.channel_id
FROM plant.samples AS s
JOIN plant.channel AS c ON c.id = s.channel_id;
COMMENT ON VIEW plant.samples_named IS 'Samples with their channel''s name and unit, for people.';
