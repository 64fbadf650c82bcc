-- episodes: when channels were outside their usual band, from when to when, and how many of the unit at once
--
-- The band of a channel is its median in a reference, and how far means are from it there: so far that in usual
-- operation the channels of a unit together have one episode in "alarm_every", by an extreme value distribution of the
-- reference. Episodes of one direction that are closer than a 20th of the interval are one. What moves in cycles, of
-- which the reference has five, is compared with what is usual at that point of a cycle instead of the median. Cycles
-- may be a quarter longer or shorter, and have to have five means. Where the reference has pauses between them, what it
-- does there is usual in a pause; what is beside one, and a part of a cycle at either end, is judged less or not. What
-- drifts all through it may go on as far, or back.
--
-- from_time is where the first mean outside begins, to_time where the last one ends (NULL: it lasted until the end).
-- score is the distance of the peak from the usual value in limits, never negative (direction has the sign): 1 is the
-- limit. Where the reference has one value but at its very end, and the channel no range, nothing is there to measure
-- by: such an episode has no score, and comes before the others that begin with it.
-- overlapping counts the channels of the unit (the part of the name before the last slash) that have an episode
-- at the same time, this one too; place is the order in which these began. A channel that stood in the reference is not
-- judged. Lines below the answer say which ones move in cycles, and which ones drift all through it, as by a daily
-- swing, or have three or four cycles in it: choose a longer one.
--
-- Parameters
--   since        timestamptz  from this moment on
--   until        timestamptz  before this moment
--   channels     text[]       names or patterns [NULL: all analog ones]
--   reference    reference    FROM..TO, or a time before [NULL: as long as the interval, 100 sampling intervals]
--   step         interval     length of a mean [NULL: a 2000th of the interval, at least the sampling interval]
--   alarm_every  interval     time in which one false episode of a unit is accepted [NULL: 20 times the interval]
--   habits       boolean      list also what came at the same time on days before [false]
-- Legal: step a 1000000th..interval, alarm_every 1 us..100 years
-- Reads from: reference
-- Portions: unit
-- Cost: one pass over both intervals.
-- Example: plantlog ask episodes --from 2026-03-09T10:00Z --to 2026-03-09T11:00Z --reference 4h
WITH
analog AS (
    SELECT g.channel_id, g.name, g.fields, c.unit_path, dense_rank() OVER (ORDER BY c.unit_path)::INT AS number
    FROM channels_with_gaps(channels, least(since, reference[1]), greatest(until, reference[2])) AS g
    JOIN channels_like(channels) AS c ON c.channel_id = g.channel_id
    WHERE g.kind = 'analog'
),
episodes AS (
    SELECT unnest(episodes_of(a.fields, a.numbers, in_us(reference), epoch_us(since), epoch_us(until), epoch_us(step),
                              epoch_us(alarm_every)),
                  recursive := true)
    FROM (SELECT list(g.fields ORDER BY g.channel_id) AS fields, list(g.number ORDER BY g.channel_id) AS numbers
          FROM analog AS g
          HAVING count(*) > 0) AS a
),
named AS (
    SELECT e.*, c.name, c.unit_path, unit_at(e.channel_id, e.from_time, patterns := channels) AS unit
    FROM episodes AS e
    JOIN analog AS c ON c.channel_id = e.channel_id
    WHERE e.verdict IS NULL
),
concurrent AS (
    SELECT one.channel_id, one.from_time, count(DISTINCT other.channel_id) AS overlapping,
           count(DISTINCT other.channel_id) FILTER (WHERE other.from_time < one.from_time) + 1 AS place
    FROM named AS one
    JOIN named AS other ON other.unit_path = one.unit_path AND other.from_time < coalesce(one.to_time, 'infinity')
                       AND coalesce(other.to_time, 'infinity') > one.from_time
    GROUP BY one.channel_id, one.from_time
)
SELECT n.name AS channel, n.from_time, n.to_time,
       CASE WHEN n.peak > n.usual THEN 'up' WHEN n.peak < n.usual THEN 'down' END AS direction, n.usual, n.peak,
       n.peak_time AS peak_at, n.unit, abs(n.peak - n.usual) / nullif(n.least, 0) AS score, o.overlapping, o.place,
       NULL AS verdict,
       occurrence('episode', n.from_time, coalesce(n.to_time, until), n.peak - n.usual) AS occurrence
FROM named AS n
JOIN concurrent AS o ON o.channel_id = n.channel_id AND o.from_time = n.from_time
UNION ALL BY NAME
SELECT c.name AS channel, verdict_text(e.verdict) AS verdict
FROM episodes AS e
JOIN analog AS c ON c.channel_id = e.channel_id
WHERE e.verdict IS NOT NULL;

SELECT * EXCLUDE (verdict, occurrence)
FROM portion_rows
WHERE verdict IS NULL
ORDER BY overlapping DESC, from_time, round(score, 6) DESC NULLS FIRST, channel;
