-- counter_decreases: where counters run backwards: good samples that are lower than the one before
--
-- Not a question; timeline and implausible use it. A register that wraps (column wraps_at of the tag list) does not run backwards.
--
-- Parameters
--   channels  text[]       names or patterns [all]
--   since     timestamptz  from this moment on
--   until     timestamptz  before this moment
-- Cost: one pass over the samples of counters.
-- Example: SELECT * FROM plant.counter_decreases('{meters/*}', '2026-03-09 10:00+00', '2026-03-09 11:00+00');
CREATE OR REPLACE FUNCTION plant.counter_decreases(channels text[], since timestamptz, until timestamptz)
RETURNS TABLE (channel_id int, name text, old_time timestamptz, "time" timestamptz, old_value float8, value float8)
LANGUAGE sql STABLE
AS $$
SELECT r.channel_id, r.name, r.old_time, r.time, r.old_value, r.value
FROM (
    SELECT l.channel_id, l.name, (c.attributes ->> 'wraps_at')::float8 AS wraps_at, s.time, s.value,
           lag(s.time) OVER per_channel AS old_time, lag(s.value) OVER per_channel AS old_value
    FROM plant.channels_like(channels) AS l
    JOIN plant.channel AS c ON c.id = l.channel_id
    CROSS JOIN LATERAL plant.good_samples(l.channel_id, since, until) AS s
    WHERE l.kind = 'counter'
    WINDOW per_channel AS (PARTITION BY l.channel_id ORDER BY s.time)
) AS r
WHERE r.value < r.old_value AND NOT plant.counter_wraps(r.old_value, r.value, r.wraps_at)
$$;
