-- The time that discrete channels were in each state, by minute.
CREATE OR REPLACE VIEW plant.states_1m AS
SELECT s.channel_id, s.bucket, s.state, s.seconds, s.n
FROM plant.states_between(INTERVAL '1 minute', '-infinity', 'infinity') AS s;
COMMENT ON VIEW plant.states_1m IS
    'Discrete channels by minute: the known time in each state, and how often it was entered (from another state, or '
    'from unknown). A minute in which a state only holds has n = 0.';
