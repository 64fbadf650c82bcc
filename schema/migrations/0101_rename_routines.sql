-- Routines that have another name now. Recorded as if their files had been run, they are dropped where nothing uses them any
-- more: versions before 1.0 did not record them.
INSERT INTO plant.setting (key, value)
SELECT 'routine/' || n.name, ''
FROM unnest(ARRAY['first_open', 'gaps_are_dirty', 'having_minutes', 'kept_out', 'not_following', 'open_for', 'tidy', 'widened']) AS n (name)
ON CONFLICT (key) DO NOTHING;
