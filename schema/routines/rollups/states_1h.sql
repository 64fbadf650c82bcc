-- The time that discrete channels were in each state, by hour.
CREATE OR REPLACE VIEW plant.states_1h AS
SELECT s.channel_id, s.bucket, s.state, s.known / 1e6::float8 AS seconds, s.n FROM plant.rollup_states_1h AS s;
COMMENT ON VIEW plant.states_1h IS 'Like states_1m, by hour.';
