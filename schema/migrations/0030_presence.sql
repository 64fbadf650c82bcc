-- Where an installation runs: a copy of its state folder would register and write as if it were the same.
CREATE TABLE plant.presence (
    installation_id uuid        PRIMARY KEY REFERENCES plant.installation (id) ON DELETE CASCADE,
    place           text        NOT NULL,
    folder          text        NOT NULL,
    seen_at         timestamptz NOT NULL DEFAULT clock_timestamp()
);
COMMENT ON TABLE plant.presence IS 'The one state folder of an installation that runs. It is said anew every 10 s.';
COMMENT ON COLUMN plant.presence.place IS 'Host and state folder.';
COMMENT ON COLUMN plant.presence.folder IS 'Which folder it is: its inode, since the last start of its host. A copy has another.';
GRANT SELECT ON plant.presence TO plant_reader, plant_ingest;
GRANT SELECT, INSERT, UPDATE ON plant.presence TO plant_maintenance;
GRANT ALL ON plant.presence TO plant_owner;
