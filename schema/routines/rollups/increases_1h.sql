-- Increases of counters by hour.
CREATE OR REPLACE VIEW plant.increases_1h AS
SELECT s.channel_id, s.bucket, s.increase, s.seconds
FROM plant.increases_between(INTERVAL '1 hour', '-infinity', 'infinity') AS s;
COMMENT ON VIEW plant.increases_1h IS 'Like increases_1m, by hour.';
