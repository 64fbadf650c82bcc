-- Several installations in one database.
ALTER TABLE plant.installation ADD COLUMN class_prefix text NOT NULL DEFAULT '' UNIQUE;
ALTER TABLE plant.installation ALTER COLUMN class_prefix DROP DEFAULT;
COMMENT ON COLUMN plant.installation.class_prefix IS 'What the names of its retention classes begin with in plant.retention_class. Empty: the first installation.';
COMMENT ON COLUMN plant.channel.retention IS 'Retention class, without the prefix of the installation. plant.channel_class has the whole name.';
COMMENT ON TABLE plant.retention_class IS 'Configured retention of each class of channels. NULL: forever. Data without a channel belong to the class default. Names begin with the class_prefix of the installation.';
-- Taking over an installation changes its id.
ALTER TABLE plant.source DROP CONSTRAINT source_installation_id_fkey,
    ADD CONSTRAINT source_installation_id_fkey FOREIGN KEY (installation_id) REFERENCES plant.installation (id) ON UPDATE CASCADE;
ALTER TABLE plant.retention_class DROP CONSTRAINT retention_class_installation_id_fkey,
    ADD CONSTRAINT retention_class_installation_id_fkey FOREIGN KEY (installation_id) REFERENCES plant.installation (id) ON UPDATE CASCADE;
ALTER TABLE plant.setting DROP CONSTRAINT setting_installation_id_fkey,
    ADD CONSTRAINT setting_installation_id_fkey FOREIGN KEY (installation_id) REFERENCES plant.installation (id) ON UPDATE CASCADE;
ALTER TABLE plant.presence DROP CONSTRAINT presence_installation_id_fkey,
    ADD CONSTRAINT presence_installation_id_fkey FOREIGN KEY (installation_id) REFERENCES plant.installation (id) ON UPDATE CASCADE ON DELETE CASCADE;
-- Who ran a job, and which writer holds a minute open.
ALTER TABLE plant.job_run ADD COLUMN installation_id uuid;
COMMENT ON COLUMN plant.job_run.installation_id IS 'The installation whose maintenance process ran the job.';
ALTER TABLE plant.rollup_dirty ADD COLUMN held_by text DEFAULT session_user;
COMMENT ON COLUMN plant.rollup_dirty.held_by IS 'If open_since is not NULL: the login of that writer. Each installation has its own.';
-- Each installation sends its own messages.
ALTER TABLE plant.notification ADD COLUMN installation_id uuid REFERENCES plant.installation (id) ON UPDATE CASCADE;
COMMENT ON COLUMN plant.notification.installation_id IS 'The installation that sends the message. NULL: any.';
-- plant._change_event replaces it.
DROP FUNCTION IF EXISTS plant._record_change;
