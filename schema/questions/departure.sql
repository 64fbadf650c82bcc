-- departure: when a unit as a whole left its usual operation, and which channels made it
--
-- The channels of a unit (the part of the name before the last slash) are judged together, also where each of them is
-- within its usual band. A principal component analysis learns from a reference how they move with each other; a mean
-- that is far off along its components (T2) or off them (SPE, the squared prediction error) has departed. Centre and
-- spread are robust; the components explain 90 % of the variance. Of what moves in cycles, of which the reference has
-- five, the distance from what is usual at that point of a cycle counts. Cycles may be a quarter longer or shorter, and
-- have to have five means. Where the reference has pauses between them, what it does there is usual in a pause. What
-- drifts all through the reference may go on as far, or back.
--
-- score is the larger one of both statistics at its peak, in limits, never negative: 1 is the limit. It is set by the
-- reference, so that in usual operation a unit departs once in "alarm_every". departed_at is where the first mean
-- beyond it begins, returned_at where the last one ends (NULL: it had not returned at the end). Departures closer than
-- a 20th of the interval are one. With a reference twice as long as the interval or longer, a unit also departs by one
-- channel that is farther from its centre (T2), or from what the others tell of it (SPE), than it ever goes there:
-- starts and stops of others hide it from the sums. channels are those which contribute most to the first three means,
-- the most first, and shares are how much, from 0 to 1. Channels that are constant or mostly missing in the reference
-- have no spread, and are left out. Lines below the answer say which channels have a reference of which a part is
-- unlike the rest, and from when to when. If it is over before the reference ends, as what was before a change of load,
-- that part is left out; else less is seen, unless the interval has such a part, too: choose another reference, such as
-- the part of it that is like the interval, if they name one. They also say which channels move in cycles, of which the
-- reference holds three or four only, and which drift all through it: it is shorter than a swing of them, such as that
-- of a day, whose course then departs.
--
-- Parameters
--   since        timestamptz  from this moment on
--   until        timestamptz  before this moment
--   channels     text[]       names or patterns [NULL: all analog ones]
--   reference    reference    FROM..TO, or a time before [NULL: as long as the interval, 100 sampling intervals]
--   step         interval     length of a mean [NULL: a 2000th of the interval, at least the sampling interval]
--   alarm_every  interval     time in which one false departure of a unit is accepted [NULL: 20 times the interval]
-- Legal: step a 1000000th..interval, alarm_every 1 us..100 years
-- Shown first: unit, departed_at, returned_at, score, channels
-- Reads from: reference
-- Portions: unit
-- Cost: one pass over both intervals, then 30 ms per unit of 100 channels.
-- Example: plantlog ask departure --from 2026-03-09T10:00Z --to 2026-03-09T11:00Z --reference 4h
WITH
analog AS (
    SELECT g.channel_id, g.name, g.fields, c.unit_path, dense_rank() OVER (ORDER BY c.unit_path)::INT AS unit
    FROM channels_with_gaps(channels, least(since, reference[1]), greatest(until, reference[2])) AS g
    JOIN channels_like(channels) AS c ON c.channel_id = g.channel_id
    WHERE g.kind = 'analog'
),
departures AS (
    SELECT unnest(departures_of(a.fields, a.units, in_us(reference), epoch_us(since), epoch_us(until),
                                epoch_us(step), epoch_us(alarm_every)),
                  recursive := true)
    FROM (SELECT list(g.fields ORDER BY g.channel_id) AS fields, list(g.unit ORDER BY g.channel_id) AS units
          FROM analog AS g
          HAVING count(*) > 0) AS a
)
SELECT u.unit_path AS unit, d.from_time AS departed_at, d.to_time AS returned_at, d.score,
       CASE WHEN d.is_spe THEN 'SPE' WHEN NOT d.is_spe THEN 'T2' END AS statistic, d.peak_time AS peak_at,
       list_transform(d.channels, lambda channel: n.names[channel]) AS channels,
       list_transform(d.shares, lambda share: round(share, 3)) AS shares, d.judged AS judged_channels,
       d.left_out AS left_out_channels, n.names[d.channel_id] AS channel,
       CASE WHEN d.verdict IS NOT NULL THEN concat(
           verdict_text(d.verdict),
           ', such as --reference ' || iso_text(d.like_from) || '..' || iso_text(d.like_to),
           ' (unlike: ' || nullif(array_to_string(list_transform(
               list_zip(d.unlike_from, d.unlike_to),
               lambda part: iso_text(part[1]) || ' to ' || iso_text(part[2])), ', '), '') || ')') END AS verdict
FROM departures AS d
JOIN (SELECT DISTINCT g.unit, g.unit_path FROM analog AS g) AS u ON u.unit = d.unit
CROSS JOIN (SELECT map(list(g.channel_id), list(g.name)) AS names FROM analog AS g) AS n;

SELECT * EXCLUDE (channel, verdict)
FROM portion_rows
WHERE verdict IS NULL
ORDER BY round(score, 6) DESC, unit, departed_at;
