-- Days that are in the archive, as Parquet files (docs/archive.md). Samples of a day are dropped only if it is archived by its
-- newest seal, and nothing came later.

CREATE TABLE plant.archived_day (
    day          date        NOT NULL,
    installation int         NOT NULL REFERENCES plant.installation (number),
    revision     int         NOT NULL,
    root         bytea       NOT NULL,
    read_from    timestamptz NOT NULL,
    archived_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    location     text        NOT NULL,
    samples      bigint      NOT NULL,
    bytes        bigint      NOT NULL,
    dropped_at   timestamptz,
    late         boolean     NOT NULL DEFAULT false,
    PRIMARY KEY (installation, day)
);
COMMENT ON TABLE plant.archived_day IS 'Days that are in the archive. Each file was compared with the seal before the day was added.';
COMMENT ON COLUMN plant.archived_day.revision IS 'Revision of the seal that the files were compared with; root: its root hash.';
COMMENT ON COLUMN plant.archived_day.read_from IS 'Samples that were written after this may not be in the archive.';
COMMENT ON COLUMN plant.archived_day.bytes IS 'Size of all files.';
COMMENT ON COLUMN plant.archived_day.dropped_at IS 'When retention first dropped samples of the day. It is not archived again after that.';
COMMENT ON COLUMN plant.archived_day.late IS 'Whether samples came after dropped_at. They stay in the database.';
GRANT ALL ON plant.archived_day TO plant_owner;

-- Batches written before this were checked for samples of days that samples had been dropped of.
CREATE TABLE plant.archive_evidence (
    installation int         PRIMARY KEY REFERENCES plant.installation (number),
    until        timestamptz NOT NULL
);
GRANT ALL ON plant.archive_evidence TO plant_owner;
