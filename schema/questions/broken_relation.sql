-- broken_relation: which channels moved together in a reference and no longer do, as sisters that drift apart
--
-- Channels of one unit, and of units whose last parts have the same name (a/boiler1, b/boiler1), are compared in pairs:
-- each one with the five that it moves with most in the reference. A channel of a unit that has sisters, beside it and
-- named like it but for digits (park/t1, park/t2), is also compared with theirs of the same name: with each of up to
-- two sisters, or with the median of more, so that the one that is apart is named. Of sisters, only what lasts for a
-- 40th of the interval is seen: running medians are compared, in which short stops of one are gone. Where several
-- channels of a unit that move together are apart from its sisters at a time, the farthest one is listed.
--
-- Both are scaled by their median and spread there; a pair is broken where they are farther apart than an extreme value
-- distribution of the reference allows, in three means or more: two transmitters of one quantity that drift apart, or a
-- pump whose speed goes up and the flow does not. Where both are beyond what the reference has, as after a stop or a
-- change of load, no slope is known: it breaks nothing as long as they go the same way by one. Where both stood still
-- in the reference, no relation is known: a pump that always ran has none with its flow. Codes of more than two states
-- have none, either: their numbers are names. Nor have slow channels that merely drift at a time: a correlation has to
-- be beyond chance, in view of how few independent values they have in the reference. A line below the answer says
-- which channels drift all through it, as by a daily swing, or have three or four cycles in it: choose a longer one.
--
-- channel is the one that most broken pairs have in common; of a single pair, the one that is farther from the others
-- that it moves with, or if both have none, that is unlike itself: it stands still or goes off while the other one does
-- what it usually does. is_odd_one is false where neither tells: then it may as well be the first partner. What a
-- controller holds looks usual, even where its sensor is wrong. partners are the others, the farthest first; of sisters
-- five at most. broken_at is where the first mean too far apart begins, until_when where the last one ends (NULL: it
-- lasted until the end). score is the largest distance in limits, never negative: 1 is the limit. correlation_before
-- and correlation_after are those with the first partner, or the median of its sisters, in the reference and since
-- then: 1: both rise and fall together; -1: one rises when the other falls; NULL: one of them stands still.
--
-- Parameters
--   since              timestamptz  from this moment on
--   until              timestamptz  before this moment
--   channels           text[]       names or patterns [NULL: all that are analog or discrete]
--   reference          reference    FROM..TO, or a time before [NULL: as long as the interval, 100 sampling intervals]
--   step               interval     length of a mean [NULL: a 500th of the interval, at least the sampling interval]
--   alarm_every        interval     time in which one false row of a unit is accepted [NULL: 20 times the interval]
--   least_correlation  float8       lowest absolute correlation in the reference, to be a pair [0.8]
-- Legal: step a 1000000th..interval, alarm_every 1 us..100 years, least_correlation 0..1
-- Reads from: reference
-- Portions: sister
-- Cost: one pass over both intervals, then 0.3 ms per pair.
-- Example: plantlog ask broken_relation --from 2026-03-09T10:00Z --to 2026-03-09T11:00Z --limit 10
WITH
numeric_channels AS (
    SELECT g.channel_id, g.name, g.fields,
           dense_rank() OVER (ORDER BY p.unit_kind)::INT AS kind,
           dense_rank() OVER (ORDER BY p.last_part)::INT AS machine,
           dense_rank() OVER (ORDER BY p.parent, p.unit_kind, c.quantity)::INT AS sisters
    FROM channels_with_gaps(channels, least(since, reference[1]), greatest(until, reference[2])) AS g
    JOIN channels_like(channels) AS c ON c.channel_id = g.channel_id
    CROSS JOIN LATERAL (SELECT regexp_extract(c.unit_path, '[^/]*$') AS last_part,
                               regexp_replace(last_part, '[0-9]+', '', 'g') AS unit_kind,
                               regexp_extract(c.unit_path, '^.*/') AS parent) AS p
    WHERE g.kind <> 'counter'
),
broken AS (
    SELECT unnest(relations_of(a.fields, a.kinds, in_us(reference), epoch_us(since), epoch_us(until),
                               epoch_us(step), epoch_us(alarm_every), least_correlation, a.machines, a.sisters),
                  recursive := true)
    FROM (SELECT list(g.fields ORDER BY g.channel_id) AS fields, list(g.kind ORDER BY g.channel_id) AS kinds,
                 list(g.machine ORDER BY g.channel_id) AS machines, list(g.sisters ORDER BY g.channel_id) AS sisters
          FROM numeric_channels AS g
          HAVING count(*) > 0) AS a
)
SELECT n.names[b.channel_id] AS channel, b.is_odd_one,
       list_transform(b.partners, lambda partner: n.names[partner]) AS partners, b.from_time AS broken_at,
       b.to_time AS until_when, b.score, b.before AS correlation_before,
       b.after AS correlation_after, CASE WHEN b.verdict IS NOT NULL THEN verdict_text(b.verdict) END AS verdict
FROM broken AS b
CROSS JOIN (SELECT map(list(g.channel_id), list(g.name)) AS names FROM numeric_channels AS g) AS n;

SELECT * EXCLUDE (verdict)
FROM portion_rows
WHERE verdict IS NULL
ORDER BY round(score, 6) DESC, channel;
