-- pauses: distances of samples that are longer than usual, and the end of the samples
--
-- Not a question. A channel that is neither polled nor watched, as pushed and imported ones are, has its own usual
-- distance of samples. It takes at least 20 distances to know it: other channels have no row.
--
-- Parameters
--   channels  integer[]    ids
--   since     timestamptz  from this moment on
--   until     timestamptz  before this moment
-- usual_seconds is five times what 90 % of a channel's distances do not exceed. The last row of each channel begins
-- with its last sample, and ends at infinity.
-- Join it LATERAL to ids that a query yields: PostgreSQL does not inline a function with a subquery as an argument.
-- Cost: one pass over the channels' samples of the interval: 2 s per million samples.
-- Example: SELECT * FROM plant.pauses('{17}', '2026-03-09 10:00+00', '2026-03-09 11:00+00');
CREATE OR REPLACE FUNCTION plant.pauses(channels int[], since timestamptz, until timestamptz)
RETURNS TABLE (channel_id int, usual_seconds float8, from_time timestamptz, to_time timestamptz)
LANGUAGE sql STABLE
AS $$
WITH
distances AS MATERIALIZED (
    SELECT s.channel_id, s.time, lead(s.time) OVER (PARTITION BY s.channel_id ORDER BY s.time) AS next_time
    FROM plant.samples_between(channels, since, until) AS s
),
usual AS (
    SELECT d.channel_id,
           5 * extract(epoch FROM percentile_disc(0.9) WITHIN GROUP (ORDER BY d.next_time - d.time))::float8 AS seconds
    FROM distances AS d
    WHERE d.next_time IS NOT NULL
    GROUP BY d.channel_id
    HAVING count(*) >= 20
)
SELECT u.channel_id, u.seconds, d.time, coalesce(d.next_time, 'infinity')
FROM usual AS u
JOIN distances AS d ON d.channel_id = u.channel_id
WHERE d.next_time IS NULL OR extract(epoch FROM d.next_time - d.time)::float8 > u.seconds
$$;
