-- The time that discrete channels were in each state, by hour.
CREATE OR REPLACE VIEW plant.states_1h AS
SELECT s.channel_id, s.bucket, s.state, s.seconds, s.n
FROM plant.states_between(INTERVAL '1 hour', '-infinity', 'infinity') AS s;
COMMENT ON VIEW plant.states_1h IS 'Like states_1m, by hour.';
