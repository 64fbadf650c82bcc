-- Increases of counters by minute.
CREATE OR REPLACE VIEW plant.increases_1m AS
SELECT s.channel_id, s.bucket, s.increase, s.seconds
FROM plant.increases_between(INTERVAL '1 minute', '-infinity', 'infinity') AS s;
COMMENT ON VIEW plant.increases_1m IS
    'Counters by minute: by how much they increased from the last reading before the minute to the last one in it, '
    'over resets and wraps, and the seconds between these two readings. A minute without readings has no row. The '
    'newest minutes, and those in rollup_dirty, are not computed yet.';
