-- first_mover: in which order channels left their usual band in an upset, earliest first
--
-- The usual band of a channel is given by its mean and its steps before since. A channel has moved when its value or
-- its step deviates by more than "sigmas" spreads, and by more than 1.5 times its maximum deviation before since, in
-- two of three buckets. A single step by noise does not count.
--
-- Parameters
--   since      timestamptz  start of the search, shortly before the upset
--   until      timestamptz  before this moment
--   channels   text[]       names or patterns [NULL: all]
--   step       interval     length of a mean [NULL: a 300th of the interval, at least 1 s]
--   sigmas     float8       minimum deviation in spreads [6]
--   reference  interval     time before since from which the usual band is learned [1 h]
-- Reads from: since - reference
-- Judges: numeric channels with samples before since
-- Portions: channel
-- Cost: one pass over the samples from since - reference to until and one row per bucket and channel:
-- 2 s per million samples.
-- Example: plantlog ask first_mover --from 2026-03-09T10:00Z --to 2026-03-09T10:30Z --limit 10
WITH moves AS (
    SELECT unnest(first_moves(a.fields, epoch_us(since - 2 * reference), epoch_us(since - reference), epoch_us(since),
                              epoch_us(until),
                              epoch_us(coalesce(step, greatest((until - since) / 300, INTERVAL '1 s'))), sigmas),
                  recursive := true)
    FROM (SELECT list(g.fields) AS fields FROM channels_with_gaps(channels, since - reference, until) AS g
          HAVING count(*) > 0) AS a
)
SELECT c.name AS channel, m.time AS moved_at, CASE WHEN m.value > m.mean THEN 'up' ELSE 'down' END AS direction,
       m.mean AS usual, m.value AS moved_to, unit_at(m.channel_id, m.time, patterns := channels) AS unit,
       m.times AS times_limit
FROM moves AS m
JOIN channels_like(channels) AS c ON c.channel_id = m.channel_id;

SELECT row_number() OVER (ORDER BY moved_at, round(times_limit, 6) DESC, channel) AS place, *
FROM portion_rows
ORDER BY place;
