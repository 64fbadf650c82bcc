-- A reason of gaps.
COMMENT ON COLUMN plant.gap.reason IS 'stopped, killed, disconnected, subscription_lost, not_available, overflow, undecodable, refused, poll_failed, poll_missed, clock_set, spool_full, spool_corrupt, database_restored, away, stale, removed.';
