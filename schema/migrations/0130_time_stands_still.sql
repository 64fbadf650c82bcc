-- A reason of gaps: values differed, but had the same timestamps.
COMMENT ON COLUMN plant.gap.reason IS 'stopped, killed, disconnected, subscription_lost, not_available, overflow, undecodable, refused, poll_failed, poll_missed, clock_set, spool_full, spool_corrupt, database_restored, away, time_stands_still, stale, removed.';
