-- Sources, channels, and the definitions of each channel over time.

CREATE TABLE plant.source (
    id              int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name            text NOT NULL UNIQUE,
    kind            text NOT NULL CHECK (kind IN ('opcua', 'modbus', 'push')),
    address         text NOT NULL,
    state           text NOT NULL DEFAULT 'unknown',
    state_since     timestamptz,
    reason          text,
    attributes      jsonb NOT NULL DEFAULT '{}',
    retired_at      timestamptz,
    installation_id uuid REFERENCES plant.installation (id)
);
COMMENT ON TABLE plant.source IS 'An endpoint that channels are read from. state: the last one that its collector reported.';
COMMENT ON COLUMN plant.source.retired_at IS 'When the configuration of its installation stopped listing it; its samples stay.';
GRANT UPDATE (state, state_since, reason) ON plant.source TO plant_ingest;
GRANT ALL ON plant.source TO plant_owner;

CREATE TABLE plant.channel (
    id            int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name          text NOT NULL UNIQUE,
    source_id     int NOT NULL REFERENCES plant.source (id),
    address       text NOT NULL,
    kind          text NOT NULL CHECK (kind IN ('analog', 'discrete', 'counter', 'text')),
    unit          text NOT NULL DEFAULT '',
    range_lo      float8,
    range_hi      float8,
    deadband      float8 NOT NULL DEFAULT 0,
    description   text NOT NULL DEFAULT '',
    attributes    jsonb NOT NULL DEFAULT '{}',
    retired_at    timestamptz,
    retention     text NOT NULL DEFAULT 'default',
    configured_at timestamptz DEFAULT clock_timestamp(),
    retirements   tstzmultirange NOT NULL DEFAULT '{}'
);
CREATE INDEX channel_source ON plant.channel (source_id);
-- Channels by their unit of the plant: dashboards read the channels of one unit and the names of all units, whatever the
-- number of channels.
CREATE INDEX channel_unit ON plant.channel (regexp_replace(name, '/[^/]*$', ''), id) INCLUDE (name)
    WHERE retired_at IS NULL;
COMMENT ON TABLE plant.channel IS 'A tag. name is a path with slashes: plant area, unit, quantity. Ids are never reused.';
COMMENT ON COLUMN plant.channel.address IS 'OPC UA: node id. Modbus: table:register, from 0. Push: what the source''s template makes of line and field; equal to name where the source created the channel.';
COMMENT ON COLUMN plant.channel.retention IS 'Class of retention: a row of plant.retention_class.';
COMMENT ON COLUMN plant.channel.configured_at IS 'When the channel was first configured; NULL: before this was recorded.';
COMMENT ON COLUMN plant.channel.retirements IS 'Periods in which it was retired before it returned: no samples are expected from these.';
-- A push source creates channels that its gateway sends and that are not configured.
GRANT INSERT (name, source_id, address, kind) ON plant.channel TO plant_ingest;
GRANT ALL ON plant.channel TO plant_owner;

-- The meaning of a channel over time: plant.channel has the current one, this table all. Triggers maintain it
-- (routines/evidence/_version_channels.sql), so every change of a channel has a version and an event.
CREATE TABLE plant.channel_version (
    channel_id  int         NOT NULL,
    valid_from  timestamptz,
    valid_to    timestamptz NOT NULL DEFAULT 'infinity' CHECK (valid_to > valid_from),
    name        text        NOT NULL,
    source_id   int         NOT NULL,
    address     text        NOT NULL,
    kind        text        NOT NULL,
    unit        text        NOT NULL,
    range_lo    float8,
    range_hi    float8,
    deadband    float8      NOT NULL,
    description text        NOT NULL,
    attributes  jsonb       NOT NULL,
    retention   text        NOT NULL,
    recorded_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    version     int         NOT NULL,
    collected   boolean     NOT NULL DEFAULT false,
    always      boolean     NOT NULL GENERATED ALWAYS AS (coalesce(NOT isfinite(valid_from), false) AND NOT isfinite(valid_to)) STORED,
    PRIMARY KEY (channel_id, version)
);
CREATE INDEX channel_version_name ON plant.channel_version (name);
CREATE UNIQUE INDEX channel_version_valid_from ON plant.channel_version (channel_id, valid_from);
COMMENT ON TABLE plant.channel_version IS 'The definitions of a channel over time: valid for samples with valid_from <= time < valid_to. The first version is valid from -infinity, the newest to infinity; a version without valid_from is not in use yet, or never was.';
COMMENT ON COLUMN plant.channel_version.collected IS 'Whether the collector determines from when it is valid; else this is the time of the change.';
GRANT ALL ON plant.channel_version TO plant_owner;
