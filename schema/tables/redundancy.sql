-- A redundant pair: two members (1 and 2) of one installation, of which one writes.

-- Every transaction of the member that writes locks this row FOR KEY SHARE where it has the member's token. A take-over
-- locks it FOR UPDATE and increases the token: after that, nothing of the former holder is committed. Renewals change
-- no key, so that they do not wait for transactions.
CREATE TABLE plant.writer_lease (
    installation_id uuid        PRIMARY KEY REFERENCES plant.installation (id) ON UPDATE CASCADE ON DELETE CASCADE,
    member          int         NOT NULL CHECK (member IN (1, 2)),
    token           bigint      NOT NULL,
    taken_at        timestamptz NOT NULL DEFAULT clock_timestamp(),
    expires_at      timestamptz NOT NULL,
    backlog_seconds float8      NOT NULL DEFAULT 0,
    wanted          boolean     NOT NULL DEFAULT false
);
COMMENT ON TABLE plant.writer_lease IS 'Which member of a redundant pair writes. Only the server''s clock is used.';
COMMENT ON COLUMN plant.writer_lease.token IS
    'Increases with each take-over. A transaction with an earlier token fails.';
COMMENT ON COLUMN plant.writer_lease.expires_at IS
    'The holder renews the lease before this time; after it, the other member may take over.';
COMMENT ON COLUMN plant.writer_lease.backlog_seconds IS 'Age of the oldest batch in the holder''s spools.';
COMMENT ON COLUMN plant.writer_lease.wanted IS
    'Whether the other member has samples that the holder did not write, and asks for the lease.';
GRANT INSERT, UPDATE ON plant.writer_lease TO plant_ingest;
GRANT ALL ON plant.writer_lease TO plant_owner;

-- What each member is missing. plant.gap has what both are missing (plant.record_member_gaps): samples that one member
-- has are written.
CREATE TABLE plant.member_gap (
    source_id  int         NOT NULL REFERENCES plant.source (id),
    channel_id int         REFERENCES plant.channel (id),
    member     int         NOT NULL CHECK (member IN (1, 2)),
    from_time  timestamptz NOT NULL,
    to_time    timestamptz CHECK (to_time >= from_time),
    reason     text        NOT NULL,
    detail     text        NOT NULL DEFAULT '',
    backfilled boolean     NOT NULL DEFAULT false,
    revision   bigint      NOT NULL DEFAULT 0,
    UNIQUE NULLS NOT DISTINCT (source_id, channel_id, member, from_time)
);
CREATE INDEX member_gap_time ON plant.member_gap (source_id, from_time, to_time);
COMMENT ON TABLE plant.member_gap IS
    'Intervals in which one member of a redundant pair received nothing. channel_id NULL: the whole source. to_time '
    'NULL: still open.';
COMMENT ON COLUMN plant.member_gap.reason IS 'As in plant.gap; or away: the member does not run.';
GRANT INSERT, UPDATE ON plant.member_gap TO plant_ingest;
GRANT ALL ON plant.member_gap TO plant_owner;

CREATE TABLE plant.member (
    installation_id uuid        NOT NULL REFERENCES plant.installation (id) ON UPDATE CASCADE ON DELETE CASCADE,
    member          int         NOT NULL CHECK (member IN (1, 2)),
    folder          uuid        NOT NULL,
    seen_at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    away            boolean     NOT NULL DEFAULT false,
    backlog_rows    bigint      NOT NULL DEFAULT 0,
    place           text        NOT NULL DEFAULT '',
    version         text        NOT NULL DEFAULT '',
    configuration   jsonb       NOT NULL DEFAULT '{}',
    PRIMARY KEY (installation_id, member)
);
COMMENT ON TABLE plant.member IS 'The members of a redundant pair: when each was last seen, and what it runs.';
COMMENT ON COLUMN plant.member.folder IS
    'Identity of the member''s state folder: a new folder has none of the data that the former one had.';
COMMENT ON COLUMN plant.member.backlog_rows IS 'Rows in its spools.';
COMMENT ON COLUMN plant.member.place IS 'Machine and state folder of its last up.';
COMMENT ON COLUMN plant.member.version IS 'plantlog''s version at its last up.';
COMMENT ON COLUMN plant.member.configuration IS 'What must be the same in both members, by option.';
GRANT INSERT, UPDATE ON plant.member TO plant_ingest;
GRANT ALL ON plant.member TO plant_owner;
