-- Days that are in the archive, as Parquet files (docs/archive.md). Samples of a day are dropped only if each of them
-- is in the archive.

CREATE TABLE plant.archived_day (
    day          date        NOT NULL,
    installation int         NOT NULL REFERENCES plant.installation (number),
    revision     int         NOT NULL,
    root         bytea       NOT NULL,
    archived_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    location     text        NOT NULL,
    samples      bigint      NOT NULL,
    bytes        bigint      NOT NULL,
    amendments   int         NOT NULL DEFAULT 0,
    dropped_at   timestamptz,
    late         boolean     NOT NULL DEFAULT false,
    PRIMARY KEY (installation, day)
);
COMMENT ON TABLE plant.archived_day IS
    'Days that are in the archive. The files were compared with the seal before the day was added.';
COMMENT ON COLUMN plant.archived_day.revision IS
    'Revision of the seal that the files were compared with; root: its root hash.';
COMMENT ON COLUMN plant.archived_day.archived_at IS
    'When it began to be read. What came later may not be in the archive.';
COMMENT ON COLUMN plant.archived_day.bytes IS 'Size of all files.';
COMMENT ON COLUMN plant.archived_day.amendments IS
    'Number of files with samples that came after others of the day were dropped.';
COMMENT ON COLUMN plant.archived_day.dropped_at IS 'When retention first dropped samples of the day.';
COMMENT ON COLUMN plant.archived_day.late IS
    'Whether batches of the day came after dropped_at and were not looked at yet.';
GRANT ALL ON plant.archived_day TO plant_owner;

-- What is both in the database and in the archive, and may be dropped. A channel of an archived day that has no row
-- here, and yet samples in the database, has some that are not in the archive.
CREATE TABLE plant.archived_channel (
    day          date    NOT NULL,
    channel_id   int     NOT NULL,
    installation int     NOT NULL REFERENCES plant.installation (number),
    n            int[],
    whole        boolean NOT NULL,
    PRIMARY KEY (day, channel_id)
);
COMMENT ON TABLE plant.archived_channel IS 'Channels of archived days that have samples in the database.';
COMMENT ON COLUMN plant.archived_channel.n IS
    'Samples of each of the 24 hours that are in the database and in the archive: if there are others, none is '
    'dropped. NULL: to be compared again.';
COMMENT ON COLUMN plant.archived_channel.whole IS
    'Whether the database has all samples of the channel; else some are only in the archive.';
CREATE INDEX archived_channel_unknown ON plant.archived_channel (day, installation) WHERE n IS NULL;
GRANT ALL ON plant.archived_channel TO plant_owner;

-- Batches written before this were checked for samples of days that samples had been dropped of.
CREATE TABLE plant.archive_evidence (
    installation int         PRIMARY KEY REFERENCES plant.installation (number),
    until        timestamptz NOT NULL
);
GRANT ALL ON plant.archive_evidence TO plant_owner;
