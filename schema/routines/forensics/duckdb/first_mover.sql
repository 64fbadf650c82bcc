-- first_mover for DuckDB: as ../first_mover.sql, which has the parameters
--
-- Portions: channel
CREATE MACRO first_mover_of(since, until, channels, step, sigmas, reference) AS TABLE
WITH moves AS (
    SELECT unnest(first_moves(a.asked, epoch_us(since - 2 * reference), epoch_us(since - reference), epoch_us(since),
                              epoch_us(until), epoch_us(coalesce(step, greatest((until - since) / 300, INTERVAL '1 s'))), sigmas),
                  recursive := true)
    FROM (SELECT list(g.asked) AS asked FROM gapped_channels(channels, since - reference, until) AS g HAVING count(*) > 0) AS a
)
SELECT c.name AS channel, m.time AS moved_at, CASE WHEN m.value > m.mean THEN 'up' ELSE 'down' END AS direction, m.mean AS usual,
       m.value AS moved_to, unit_at(m.channel_id, m.time, patterns := channels) AS unit, m.times AS times_limit
FROM moves AS m
JOIN channels_like(channels) AS c ON c.channel_id = m.channel_id;

CREATE MACRO first_mover(
    since, until, channels := NULL, step := NULL, sigmas := 6, reference := '1 hour'
) AS TABLE
WITH found AS (
    FROM first_mover_of(since::TIMESTAMPTZ, until::TIMESTAMPTZ, channels::TEXT[], step::INTERVAL, sigmas::DOUBLE,
                        reference::INTERVAL)
)
SELECT row_number() OVER (ORDER BY moved_at, round(times_limit, 6) DESC, channel) AS place, *
FROM found
ORDER BY place;
