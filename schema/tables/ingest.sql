-- Arrivals, gaps, and rejected rows.

CREATE TABLE plant.ingest_batch (
    source_id   int         NOT NULL,
    sequence    bigint      NOT NULL,
    kind        text        NOT NULL CHECK (kind IN ('samples', 'events', 'gaps', 'counts')),
    rows        int         NOT NULL,
    first_time  timestamptz NOT NULL,
    last_time   timestamptz NOT NULL,
    received_at timestamptz NOT NULL,
    written_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (source_id, sequence)
);
CREATE INDEX ingest_batch_written ON plant.ingest_batch USING brin (written_at);
COMMENT ON TABLE plant.ingest_batch IS
    'One row for each committed spool batch, as evidence of its arrival and lag. The key makes a replay a no-op.';
COMMENT ON COLUMN plant.ingest_batch.sequence IS
    'Sequence number of the batch in its spool. Negative: derived from the content that a gateway sent, so that a '
    'repeated body is recognised. A row of kind counts must be kept as long as its batch may be sent again: only this '
    'row shows that its increments are already in event_count_1m.';
GRANT INSERT ON plant.ingest_batch TO plant_ingest;
GRANT DELETE ON plant.ingest_batch TO plant_maintenance;
GRANT ALL ON plant.ingest_batch TO plant_owner;

CREATE TABLE plant.gap (
    id            bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    source_id     int NOT NULL REFERENCES plant.source (id),
    channel_id    int REFERENCES plant.channel (id),
    from_time     timestamptz NOT NULL,
    to_time       timestamptz CHECK (to_time >= from_time),
    reason        text NOT NULL,
    backfilled_at timestamptz,
    detail        text NOT NULL DEFAULT '',
    revision      bigint NOT NULL DEFAULT 0,
    opened_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    UNIQUE NULLS NOT DISTINCT (source_id, channel_id, from_time)
);
CREATE INDEX gap_time ON plant.gap (from_time, to_time);
CREATE INDEX gap_open ON plant.gap (source_id) WHERE to_time IS NULL;
COMMENT ON TABLE plant.gap IS
    'Intervals in which samples are missing. channel_id NULL: the whole source. to_time NULL: still open.';
COMMENT ON COLUMN plant.gap.to_time IS
    'Time of the first sample after the gap. NULL: still open. Equal to from_time: no samples were missing after all.';
COMMENT ON COLUMN plant.gap.reason IS
    'stopped, killed, disconnected, subscription_lost, not_available, overflow, undecodable, refused, poll_failed, '
    'poll_missed, clock_set, spool_full, spool_corrupt, database_restored, away, time_stands_still, stale, removed.';
COMMENT ON COLUMN plant.gap.revision IS
    'When the collector reported the gap (µs since 1970). A later report replaces an earlier one.';
GRANT INSERT, UPDATE (to_time, backfilled_at, reason, detail, revision) ON plant.gap TO plant_ingest;
GRANT ALL ON plant.gap TO plant_owner;

CREATE TABLE plant.quarantine (
    id             bigint      PRIMARY KEY,
    quarantined_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    reason         text        NOT NULL,
    source_id      int         NOT NULL,
    received_at    timestamptz NOT NULL,
    channel_id     int,
    time_us        bigint,
    value          float8,
    status         int,
    detail         jsonb       NOT NULL DEFAULT '{}',
    retried_at     timestamptz
);
CREATE INDEX quarantine_at ON plant.quarantine (quarantined_at);
CREATE INDEX quarantine_received ON plant.quarantine (received_at);
COMMENT ON TABLE plant.quarantine IS
    'Rejected samples, events and gaps, with the reason. id is a hash of the row: a replay is a no-op.';
COMMENT ON COLUMN plant.quarantine.time_us IS
    'Time of the sample in µs since 1970. It may be outside the range of timestamptz.';
COMMENT ON COLUMN plant.quarantine.detail IS
    'Events and gaps: the whole row. Samples: the database''s error message, if the database rejected them.';
GRANT INSERT ON plant.quarantine TO plant_ingest;
GRANT DELETE ON plant.quarantine TO plant_maintenance;
GRANT ALL ON plant.quarantine TO plant_owner;
