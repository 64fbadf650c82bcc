-- Whose what is registered is: an installation is a state folder with the plant that it logs. Only its own `up` changes,
-- retires or replaces what an installation registered.

CREATE TABLE plant.installation (
    id            uuid        PRIMARY KEY,
    plant         text        NOT NULL,
    registered_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
COMMENT ON TABLE plant.installation IS 'A state folder that registers here, and the name of its plant.';
GRANT SELECT ON plant.installation TO plant_ingest, plant_reader;
GRANT ALL ON plant.installation TO plant_owner;

-- NULL: of the database itself, or from before this version and not yet adopted. Channels are their source's.
ALTER TABLE plant.source ADD COLUMN installation_id uuid REFERENCES plant.installation (id);
ALTER TABLE plant.retention_class ADD COLUMN installation_id uuid REFERENCES plant.installation (id);
ALTER TABLE plant.setting ADD COLUMN installation_id uuid REFERENCES plant.installation (id);
COMMENT ON COLUMN plant.source.retired_at IS 'Since when the configuration of its installation no longer names it; its samples stay.';
