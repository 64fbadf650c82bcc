-- Retention classes, what they have dropped, and the runs of maintenance jobs.
--
-- Data is dropped only as configured, and every drop is recorded: an event of type retention with the day, classes,
-- channels, rows and bytes is written in the same transaction. The open day is never dropped, nor an unsealed day if
-- days are sealed; plant.drop_slice enforces this for every caller.

CREATE TABLE plant.retention_class (
    name            text PRIMARY KEY,
    raw             interval,
    minute          interval,
    hour            interval,
    event           interval,
    installation_id uuid REFERENCES plant.installation (id) ON UPDATE CASCADE
);
INSERT INTO plant.retention_class (name) VALUES ('default');
COMMENT ON TABLE plant.retention_class IS
    'Configured retention of each class of channels. NULL: forever. Data without a channel belong to the class '
    'default. Names begin with the class_prefix of the installation.';
GRANT ALL ON plant.retention_class TO plant_owner;

-- How far data has been dropped. Rollups whose raw data is gone must not be recomputed.
CREATE TABLE plant.dropped (
    what      text        NOT NULL,
    retention text        NOT NULL,
    until     timestamptz NOT NULL,
    PRIMARY KEY (what, retention)
);
COMMENT ON TABLE plant.dropped IS
    'Times before which retention may have dropped data, by class and kind (raw, 1m, 1h, event).';
GRANT ALL ON plant.dropped TO plant_owner;

CREATE TABLE plant.job_run (
    id              bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job             text        NOT NULL,
    started_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    ended_at        timestamptz,
    outcome         text        CHECK (outcome IN ('ok', 'failed', 'skipped')),
    rows            bigint,
    bytes           bigint,
    detail          text        NOT NULL DEFAULT '',
    installation_id uuid,
    CHECK ((ended_at IS NULL) = (outcome IS NULL))
);
CREATE INDEX job_run_job ON plant.job_run (job, started_at DESC);
COMMENT ON TABLE plant.job_run IS 'Runs of maintenance jobs. outcome NULL: running, or killed and not retried yet.';
COMMENT ON COLUMN plant.job_run.installation_id IS 'The installation whose maintenance process ran the job.';
GRANT INSERT, UPDATE, DELETE ON plant.job_run TO plant_maintenance;
GRANT ALL ON plant.job_run TO plant_owner;
