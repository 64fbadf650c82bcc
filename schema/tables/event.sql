-- Events, and event counts by minute.

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
COMMENT ON TABLE plant.event IS
    'Values that are not numbers, and occurrences such as alarms. id is a hash of the event: a replay is a no-op.';
GRANT INSERT ON plant.event TO plant_ingest;
GRANT ALL ON plant.event TO plant_owner;

-- Counts by minute: alarms, changes of state, samples that were not Good, pulses.
--
-- The writer updates the newest minutes repeatedly. The fillfactor leaves half of each page free for HOT updates, which
-- touch no index: 99.8 % of the updates are HOT, and 60 updates of each row leave a fifth of the bytes (measured).
-- Numbers from a dictionary in place of type names would be 7 % faster, which is within the noise. Names sort by code
-- point, as in the writer.
CREATE TABLE plant.event_count_1m (
    bucket     timestamptz NOT NULL,
    type       text COLLATE "C" NOT NULL,
    channel_id int         NOT NULL,
    n          bigint      NOT NULL,
    PRIMARY KEY (bucket, type, channel_id)
) WITH (fillfactor = 50);
-- Chunks of seven days, as for plant.event, whose events are most of what is counted: a thousand types that occur in
-- every minute give about 10 million rows in that time, the usual alarms of a plant less than a hundredth of that. Rows
-- are written at the end of the key, whatever the length of a chunk.
SELECT public.create_hypertable('plant.event_count_1m', public.by_range('bucket', INTERVAL '7 days'),
                                create_default_indexes => false);
CREATE INDEX event_count_1m_type ON plant.event_count_1m (type, channel_id, bucket DESC);
COMMENT ON TABLE plant.event_count_1m IS
    'Event counts for the minute that begins at bucket: events by type, samples that are not Good (bad_quality, '
    'uncertain_quality), and increments pushed by gateways (measurement.field). A replay is counted once.';
COMMENT ON COLUMN plant.event_count_1m.channel_id IS '0: no channel.';
GRANT INSERT, UPDATE (n) ON plant.event_count_1m TO plant_ingest;
GRANT ALL ON plant.event_count_1m TO plant_owner;
