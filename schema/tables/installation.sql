-- The owners, settings and applied migrations of the database.

CREATE TABLE IF NOT EXISTS plant.migration ( -- it may exist, empty, if the first migration failed
    version    int         PRIMARY KEY,
    name       text        NOT NULL,
    sha256     text        NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
GRANT ALL ON plant.migration TO plant_owner;
GRANT SELECT ON plant.migration TO plant_ingest, plant_reader;
GRANT SELECT, MAINTAIN ON plant.migration TO plant_maintenance;

-- An installation is a state folder and the plant that it logs. Several can share a database: only its own `up`
-- changes, retires or replaces what an installation registered. A row whose installation_id is NULL belongs to the
-- database itself, or is not adopted yet. The settings of the configuration are those of one installation, the leading
-- one: the first that registered. An installation that is taken over gets the id of the new one, and keeps the rest.
CREATE TABLE plant.installation (
    id            uuid        PRIMARY KEY,
    plant         text        NOT NULL,
    registered_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    class_prefix  text        NOT NULL UNIQUE,
    number        int         NOT NULL UNIQUE CHECK (number > 0),
    sealing       boolean     NOT NULL DEFAULT false,
    archive_from  timestamptz,
    archive_location text,
    notifies_from timestamptz,
    viewer_url    text
);
COMMENT ON TABLE plant.installation IS
    'State folders that are registered in this database, with the name of their plant.';
COMMENT ON COLUMN plant.installation.class_prefix IS
    'What the names of its retention classes begin with in plant.retention_class. Empty: the first installation.';
COMMENT ON COLUMN plant.installation.number IS
    'Its number in seals, which never changes. The first installation has 1.';
COMMENT ON COLUMN plant.installation.sealing IS 'Whether it seals closed days, as configured.';
COMMENT ON COLUMN plant.installation.archive_from IS
    'It archives sealed days from then on: retention had dropped samples of the last day before that were not '
    'archived. NULL: it archives nothing.';
COMMENT ON COLUMN plant.installation.archive_location IS 'Where it archives them, as configured.';
COMMENT ON COLUMN plant.installation.notifies_from IS
    'Alarms that were recorded since then are sent: notifications were enabled. NULL: none are sent.';
COMMENT ON COLUMN plant.installation.viewer_url IS 'Where browsers find its viewer. NULL: 1.0 started it last.';
GRANT ALL ON plant.installation TO plant_owner;

-- Where an installation runs. Without this, a copy of its state folder would register and write as the same
-- installation.
CREATE TABLE plant.presence (
    installation_id uuid        PRIMARY KEY REFERENCES plant.installation (id) ON UPDATE CASCADE ON DELETE CASCADE,
    place           text        NOT NULL,
    folder          text        NOT NULL,
    seen_at         timestamptz NOT NULL DEFAULT clock_timestamp()
);
COMMENT ON TABLE plant.presence IS 'Host and state folder where each installation runs. Updated every 10 s.';
COMMENT ON COLUMN plant.presence.place IS 'Host and state folder.';
COMMENT ON COLUMN plant.presence.folder IS
    'Identity of the folder: its inode, and the last boot of its host. A copy of the folder has a different one.';
GRANT SELECT, INSERT, UPDATE ON plant.presence TO plant_maintenance;
GRANT ALL ON plant.presence TO plant_owner;

-- Includes one row per file of routines/: its SHA-256.
CREATE TABLE plant.setting (
    key             text PRIMARY KEY,
    value           text NOT NULL,
    installation_id uuid REFERENCES plant.installation (id) ON UPDATE CASCADE
);
COMMENT ON TABLE plant.setting IS
    'Properties of this database, such as edition (apache or community) and timescaledb_version, and settings from '
    'the configuration.';
GRANT ALL ON plant.setting TO plant_owner;
