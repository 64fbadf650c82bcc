-- The time that discrete channels were in each state, by hour.
CREATE OR REPLACE VIEW plant.states_1h AS
SELECT s.channel_id, s.bucket, s.state, s.known / 1e6::float8 AS seconds, s.n FROM plant.rollup_states_1h AS s
UNION ALL
SELECT h.channel_id, h.bucket, h.value + 0, h.known / 1e6::float8, 0 -- + 0: no -0
FROM plant.held_buckets(INTERVAL '1 hour', '-infinity', 'infinity') AS h
JOIN plant.channel AS c ON c.id = h.channel_id AND c.kind = 'discrete';
COMMENT ON VIEW plant.states_1h IS 'Like states_1m, by hour.';
