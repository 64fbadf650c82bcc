-- first_mover: in which order channels left their usual course in an upset, earliest first
--
-- Means of 1, 4, 16 and 64 steps are compared with those before them. A channel has moved where that differs by more
-- than it does by chance: the limit is set by the largest differences in the reference, which has the channel's noise,
-- trends and habits in it. Up to four large changes in the reference are left out, as they may be faults; what happened
-- more often is usual, and so is any change of what holds its values for most of the time, such as a set point, whose
-- ramp begins with its first step. A state moves, too, where it has a value that it never had in the reference. A
-- single outlier is no move, nor is what a change before the interval leaves in the means. A channel has another row
-- where it moves again later, at least three times as many limits.
--
-- moved_to is the mean from the move on, of as many steps as it was seen in, or as are left; usual is that of as many
-- (16 at least) just before it, going on with the trend of the reference. Of a counter moved_to is its value, and usual
-- what it would have been, had it kept its rate.
--
-- moved_at is the time of a sample; place is its order: 1 is the first. times_limit says how far it went, in limits,
-- never negative (direction has the sign): 1 is the limit; it is NULL where the channel was constant before, as nothing
-- can be measured by that, and of a state, as its codes have no scale.
--
-- Parameters
--   since         timestamptz  start of the search, shortly before the upset
--   until         timestamptz  before this moment
--   channels      text[]       names or patterns [NULL: all but texts]
--   step          interval     length of a mean [NULL: a 10000th of the interval, the sampling interval]
--   reference     reference    FROM..TO, or length [NULL: 1 h, 300 sampling intervals, 10 times the interval up to 1 d]
--   false_alarms  interval     mean time between false alarms of all channels together [NULL: 20 times the interval]
--   sigmas        float8       smallest deviation, in standard deviations of the reference [0]
--   habits        boolean      list also what came at the same time on days before [false]
-- Legal: step a 1000000th..interval, false_alarms 1 us..100 years, sigmas 0..
-- Reads from: reference
-- Portions: channel
-- Cost: one pass over the samples from the reference to until.
-- Example: plantlog ask first_mover --from 2026-03-09T10:00Z --to 2026-03-09T10:30Z --limit 10
SELECT c.name AS channel, m.time AS moved_at, CASE WHEN m.value > m.usual THEN 'up' ELSE 'down' END AS direction,
       m.usual, m.value AS moved_to, unit_at(m.channel_id, m.time, patterns := channels) AS unit,
       nullif(m.times, 'NaN') AS times_limit, verdict_text(m.verdict) AS verdict,
       CASE WHEN m.verdict = 0 THEN occurrence('move', m.time, m.time, m.value - m.usual) END AS occurrence
FROM channels_like(channels) AS c
LEFT JOIN moves_of(channels, reference, since, until, step, false_alarms, sigmas) AS m ON m.channel_id = c.channel_id
WHERE c.kind <> 'text';

SELECT row_number() OVER (ORDER BY moved_at, round(times_limit, 6) DESC, channel) AS place,
       * EXCLUDE (verdict, occurrence)
FROM portion_rows
WHERE verdict IS NULL
ORDER BY place;
