-- A redundant pair: two members (1 and 2) of one installation, of which one writes.

-- Every transaction of the member that writes locks this row FOR KEY SHARE where it has the member's token. A take-over
-- locks it FOR UPDATE and increases the token: after that, nothing of the former holder is committed. Renewals change no
-- key, so that they do not wait for transactions.
CREATE TABLE plant.writer_lease (
    installation_id uuid        PRIMARY KEY REFERENCES plant.installation (id) ON DELETE CASCADE,
    member          int         NOT NULL CHECK (member IN (1, 2)),
    token           bigint      NOT NULL,
    taken_at        timestamptz NOT NULL DEFAULT clock_timestamp(),
    expires_at      timestamptz NOT NULL,
    backlog_seconds float8      NOT NULL DEFAULT 0,
    wanted          boolean     NOT NULL DEFAULT false
);
COMMENT ON TABLE plant.writer_lease IS 'Which member of a redundant pair writes. Only the server''s clock is used.';
COMMENT ON COLUMN plant.writer_lease.token IS 'Increases with each take-over. A transaction with an earlier token fails.';
COMMENT ON COLUMN plant.writer_lease.expires_at IS 'The holder renews the lease before this time; after it, the other member may take over.';
COMMENT ON COLUMN plant.writer_lease.backlog_seconds IS 'Age of the oldest batch in the holder''s spools.';
COMMENT ON COLUMN plant.writer_lease.wanted IS 'Whether the other member has samples that the holder did not write, and asks for the lease.';
GRANT INSERT, UPDATE ON plant.writer_lease TO plant_ingest;
GRANT ALL ON plant.writer_lease TO plant_owner;
