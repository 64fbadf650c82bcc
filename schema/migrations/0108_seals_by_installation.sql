-- Each installation seals its own channels, with its own keys. Seals made so far are those of the first installation, and
-- cover all channels.
ALTER TABLE plant.installation ADD COLUMN number int, ADD COLUMN sealing boolean NOT NULL DEFAULT false;
UPDATE plant.installation AS i
SET number = n.number,
    sealing = coalesce((SELECT s.value FROM plant.setting AS s WHERE s.key = 'sealing'), 'off') = 'on'
FROM (SELECT o.id, row_number() OVER (ORDER BY o.class_prefix <> '', o.registered_at, o.id) AS number
      FROM plant.installation AS o) AS n
WHERE n.id = i.id;
ALTER TABLE plant.installation ALTER COLUMN number SET NOT NULL, ADD UNIQUE (number), ADD CHECK (number > 0);
ALTER TABLE plant.setting DISABLE TRIGGER USER; -- it is no change of the configuration
DELETE FROM plant.setting AS s WHERE s.key = 'sealing';
ALTER TABLE plant.setting ENABLE TRIGGER USER;
COMMENT ON COLUMN plant.installation.number IS 'Its number in seals, which never changes. The first installation has 1.';
COMMENT ON COLUMN plant.installation.sealing IS 'Whether it seals closed days, as configured.';

ALTER TABLE plant.seal_key ADD COLUMN chain int NOT NULL DEFAULT 1 CHECK (chain > 0);
ALTER TABLE plant.seal_key ALTER COLUMN chain DROP DEFAULT;
COMMENT ON COLUMN plant.seal_key.chain IS 'Number of the installation that the key belongs to.';

ALTER TABLE plant.seal_digest DROP CONSTRAINT seal_digest_day_revision_fkey, DROP CONSTRAINT seal_digest_pkey;
ALTER TABLE plant.day_seal DROP CONSTRAINT day_seal_day_revision_key, DROP CONSTRAINT day_seal_pkey;
ALTER TABLE plant.day_seal ADD COLUMN installation int NOT NULL DEFAULT 0 CHECK (installation >= 0);
ALTER TABLE plant.day_seal ALTER COLUMN installation DROP DEFAULT;
ALTER TABLE plant.day_seal ADD COLUMN chain int NOT NULL GENERATED ALWAYS AS (greatest(installation, 1)) STORED;
ALTER TABLE plant.day_seal ADD PRIMARY KEY (day, installation, revision), ADD UNIQUE (chain, serial);
ALTER TABLE plant.seal_digest ADD COLUMN installation int NOT NULL DEFAULT 0;
ALTER TABLE plant.seal_digest ALTER COLUMN installation DROP DEFAULT;
ALTER TABLE plant.seal_digest ADD PRIMARY KEY (day, installation, channel_id, revision),
    ADD FOREIGN KEY (day, installation, revision) REFERENCES plant.day_seal (day, installation, revision);
COMMENT ON TABLE plant.day_seal IS 'Seals, by installation in the order of sealing. Each contains the hash of the previous one of its chain. Late data lead to an amended seal of the same day.';
COMMENT ON COLUMN plant.day_seal.installation IS 'Number of the installation whose channels, events and gaps the seal covers. 0: all of the database.';
COMMENT ON COLUMN plant.day_seal.chain IS 'Number of the installation that made the seal.';

ALTER TABLE plant.seal_progress DROP CONSTRAINT seal_progress_pkey, ADD COLUMN chain int NOT NULL DEFAULT 1;
ALTER TABLE plant.seal_progress ALTER COLUMN chain DROP DEFAULT, ADD PRIMARY KEY (chain, day);
ALTER TABLE plant.seal_work DROP CONSTRAINT seal_work_pkey, ADD COLUMN chain int NOT NULL DEFAULT 1;
ALTER TABLE plant.seal_work ALTER COLUMN chain DROP DEFAULT, ADD PRIMARY KEY (chain, day, channel_id, hour);
ALTER TABLE plant.seal_evidence DROP COLUMN one, ADD COLUMN chain int DEFAULT 1 PRIMARY KEY;
ALTER TABLE plant.seal_evidence ALTER COLUMN chain DROP DEFAULT;
