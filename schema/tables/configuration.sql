-- The configurations that were applied, with their files. Both tables are append-only, as those of seals
-- (routines/evidence/refuse_change.sql). An event config_applied has the digests of each revision.

-- plant.toml may hold secrets, such as the address of a webhook: only the owner can read contents.
CREATE TABLE plant.config_file (
    sha256  text  PRIMARY KEY CHECK (sha256 = encode(sha256(content), 'hex')),
    content bytea COMPRESSION lz4 NOT NULL
);
COMMENT ON TABLE plant.config_file IS
    'Contents of plant.toml, tag lists and instance lists, each once. Files that options name, such as passwords, are '
    'not kept.';
REVOKE ALL ON plant.config_file FROM plant_ingest, plant_reader, plant_maintenance;
GRANT SELECT, INSERT ON plant.config_file TO plant_owner;

CREATE TABLE plant.config_revision (
    installation int         NOT NULL REFERENCES plant.installation (number),
    revision     int         NOT NULL CHECK (revision > 0),
    applied_at   timestamptz NOT NULL,
    account      text        NOT NULL,
    sudo_user    text,
    host         text        NOT NULL,
    command      text        NOT NULL,
    member       int         CHECK (member IN (1, 2)),
    added        int         NOT NULL,
    moved        int         NOT NULL,
    changed      int         NOT NULL,
    retired      int         NOT NULL,
    file         text        NOT NULL,
    files        jsonb       NOT NULL,
    PRIMARY KEY (installation, revision)
);
COMMENT ON TABLE plant.config_revision IS
    'Each configuration that up or apply put in force, if its files differ from those before.';
COMMENT ON COLUMN plant.config_revision.installation IS 'Number of the installation.';
COMMENT ON COLUMN plant.config_revision.account IS 'The operating system''s account that ran the command.';
COMMENT ON COLUMN plant.config_revision.sudo_user IS 'Who called sudo, as sudo says.';
COMMENT ON COLUMN plant.config_revision.member IS 'Of a redundant pair: whose configuration it is.';
COMMENT ON COLUMN plant.config_revision.added IS
    'Channels that it added; moved to another source, changed otherwise, retired: likewise.';
COMMENT ON COLUMN plant.config_revision.file IS 'Name of plant.toml in files.';
COMMENT ON COLUMN plant.config_revision.files IS
    'Path from the folder of plant.toml → SHA-256, the key in plant.config_file.';
GRANT SELECT, INSERT ON plant.config_revision TO plant_owner;
