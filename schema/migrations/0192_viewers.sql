-- Each installation has a viewer of its own. That of the leading one was a setting of the database.
ALTER TABLE plant.installation ADD COLUMN viewer_url text;
COMMENT ON COLUMN plant.installation.viewer_url IS 'Where browsers find its viewer. NULL: 1.0 started it last.';

UPDATE plant.installation AS i SET viewer_url = s.value
FROM plant.setting AS s
WHERE s.key = 'viewer_url' AND s.installation_id = i.id;

DELETE FROM plant.setting AS s WHERE s.key = 'viewer_url';
