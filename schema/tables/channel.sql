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
    installation_id uuid REFERENCES plant.installation (id) ON UPDATE CASCADE
);
COMMENT ON TABLE plant.source IS
    'Endpoints that channels are read from. state is the last one that the collector reported.';
COMMENT ON COLUMN plant.source.retired_at IS
    'When the source was removed from the configuration of its installation. Its samples are kept.';
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
-- Channels by their unit of the plant: dashboards read the channels of one unit and the names of all units, whatever
-- the number of channels.
CREATE INDEX channel_unit ON plant.channel (regexp_replace(name, '/[^/]*$', ''), id) INCLUDE (name, source_id)
    WHERE retired_at IS NULL;
COMMENT ON TABLE plant.channel IS
    'Tags. name is a path with slashes: plant area, unit, quantity. Ids are never reused.';
COMMENT ON COLUMN plant.channel.address IS
    'OPC UA: node id. Modbus: table:register, counted from 0. Push: the name that the source''s template makes of a '
    'line and a field; for a channel that the source created, the same as name.';
COMMENT ON COLUMN plant.channel.retention IS
    'Retention class, without the prefix of the installation. plant.channel_class has the whole name.';
COMMENT ON COLUMN plant.channel.configured_at IS
    'When the channel was first configured. NULL: before this was recorded.';
COMMENT ON COLUMN plant.channel.retirements IS
    'Past periods in which the channel was retired. No samples are expected in them.';
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
    always      boolean     NOT NULL GENERATED ALWAYS AS (coalesce(NOT isfinite(valid_from), false)
                                                          AND NOT isfinite(valid_to)) STORED,
    PRIMARY KEY (channel_id, version)
);
CREATE INDEX channel_version_name ON plant.channel_version (name);
CREATE UNIQUE INDEX channel_version_valid_from ON plant.channel_version (channel_id, valid_from);
COMMENT ON TABLE plant.channel_version IS
    'Definitions of each channel over time. A version applies to samples with valid_from <= time < valid_to. The '
    'first version is valid from -infinity, the newest to infinity. A version without valid_from is not in use yet, '
    'or never was.';
COMMENT ON COLUMN plant.channel_version.collected IS
    'true: valid_from is the time from which the collector used the version. false: it is the time of the change.';
GRANT ALL ON plant.channel_version TO plant_owner;
