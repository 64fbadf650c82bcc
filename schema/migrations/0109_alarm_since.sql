COMMENT ON COLUMN plant.alarm.since IS 'When the alarm entered its current state; acknowledged_active: since when it is active.';
