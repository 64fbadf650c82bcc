-- Alarms from before notifications were enabled are not sent. Those who send them already go on.
ALTER TABLE plant.installation ADD COLUMN notifies_from timestamptz;
UPDATE plant.installation SET notifies_from = '-infinity' WHERE notifies_from IS NULL;
COMMENT ON COLUMN plant.installation.notifies_from IS 'Alarms that were recorded since then are sent: notifications were enabled. NULL: none are sent.';
