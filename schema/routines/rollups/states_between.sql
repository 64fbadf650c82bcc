-- Rows of states_1m or states_1h (width: a minute or an hour) with from <= bucket < to,
-- without reading others: see means_between.
CREATE OR REPLACE FUNCTION plant.states_between(width interval, "from" timestamptz, "to" timestamptz)
RETURNS TABLE (channel_id int, bucket timestamptz, state float8, seconds float8, n int)
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT m.channel_id, m.bucket, m.state, m.known / 1e6::float8, m.n
    FROM plant.rollup_states_1m AS m
    WHERE width = INTERVAL '1 minute' AND m.bucket >= "from" AND m.bucket < "to"
    UNION ALL
    SELECT h.channel_id, h.bucket, h.state, h.known / 1e6::float8, h.n
    FROM plant.rollup_states_1h AS h
    WHERE width = INTERVAL '1 hour' AND h.bucket >= "from" AND h.bucket < "to"
    UNION ALL
    SELECT h.channel_id, h.bucket, h.value + 0, h.known / 1e6::float8, 0 -- + 0: no -0
    FROM plant.held_buckets(width, "from", "to", 'discrete') AS h;
END;
COMMENT ON FUNCTION plant.states_between IS
    'Rows of states_1m or states_1h (width: 1 minute or 1 hour) between two times, without reading others.';
