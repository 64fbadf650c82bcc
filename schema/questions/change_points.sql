-- change_points: when the level, the slope or the spread of channels changed, without knowing when to look
--
-- Means of "step" on both sides of each moment are compared at three widths: a 32nd, a 16th and an 8th of the interval
-- on each side, twice that for spreads. A level has changed if a line with a step fits them better than a line, a slope
-- if a line with a kink does; a spread, if the means scatter more or less about their neighbours. The score is how
-- large the change is in spreads of noise, also of noise that wanders or swings, or of rounded values: never negative,
-- 5.5 is rare by chance. Single spikes are no change, nor is a steady drift. What a channel does again and again is its
-- habit, and only a change that is larger is listed: where it changes more than four times in the interval, as a
-- machine in cycles does, and what it does more than four times in the reference, there and back, or in three of four
-- parts of it that are as long as the interval, of two or three in each. What is as large as its habit has a score of
-- 4.6. Where the reference is shorter than two intervals, what it has once is the habit for changes that are at least
-- half as large; a line below the answer names the channels of which it left out such a change, as the other one may
-- have been a fault. Of what holds its values, as set points do (16 changes, ramps or runs between long rests in both
-- intervals, at most), any change there is usual. A larger one comes last, without a score: there is no noise to
-- measure it by. A channel without samples in the reference is judged by the interval alone, as a line says, too.
--
-- A moment has one row of a channel, of what is clearest. changed_at is where the first mean after the change begins:
-- where a step, a kink, or two steps there and back, whichever is better, fits the means of the width best, and of a
-- spread, where it is clearest.
-- "before" and "after" are those of one width: mean, slope in an hour, or spread, which is how far means are from
-- their neighbours, as a standard deviation; size is "after" minus "before", so positive: it rose. A spread is never
-- 0: what is much smaller than a step of rounded values, or than a thousandth of what the channel does, counts as
-- that. Channels with fewer than 32 means are not judged, nor are changes in the first and the last 3 means of the
-- others (16 for spreads), nor is what is left of the interval behind the last whole mean. A change that is less than 8
-- means from an end has to be clear 8 means from it. A change in a gap is shown where samples go on.
--
-- Parameters
--   since        timestamptz  from this moment on
--   until        timestamptz  before this moment
--   channels     text[]       names or patterns [NULL: all analog ones]
--   step         interval     length of a mean [NULL: a 300th of the interval, the sampling interval]
--   reference    reference    FROM..TO, or a time before [NULL: 1 h, 300 sampling intervals, the interval up to 1 d]
--   least_score  float8       lowest score to list [5.5]
--   habits       boolean      list also what came at the same time on days before [false]
-- Legal: step a 1000000th..interval, least_score 0..
-- Reads from: reference
-- Portions: channel
-- Cost: one pass over the samples from the reference to until, then 0.1 ms per channel and 300 means.
-- Example: plantlog ask change_points --from 2026-03-09T10:00Z --to 2026-03-09T11:00Z --limit 10
WITH changes AS (
    SELECT unnest(changes_of(a.fields, in_us(reference), epoch_us(since), epoch_us(until), epoch_us(step), least_score),
                  recursive := true)
    FROM fields_of(channels, least(since, reference[1]) - INTERVAL '1 hour', greatest(until, reference[2]), ['analog'])
        AS a
),
with_unit AS (
    SELECT c.*, unit_at(c.channel_id, c.time, patterns := channels) AS unit
    FROM changes AS c
)
SELECT n.name AS channel, u.time AS changed_at,
       CASE u.kind WHEN 0 THEN 'level' WHEN 1 THEN 'slope' ELSE 'spread' END AS kind,
       u.before, u.after, u.after - u.before AS size,
       CASE WHEN u.kind = 1 THEN u.unit || '/h' ELSE u.unit END AS unit, nullif(u.score, 'NaN') AS score,
       verdict_text(u.verdict) AS verdict,
       CASE WHEN u.verdict = 0 THEN occurrence(u.kind, u.time, u.time, u.after - u.before) END AS occurrence
FROM channels_like(channels) AS n
LEFT JOIN with_unit AS u ON u.channel_id = n.channel_id
WHERE n.kind = 'analog';

SELECT * EXCLUDE (verdict, occurrence)
FROM portion_rows
WHERE verdict IS NULL
ORDER BY round(score, 6) DESC NULLS LAST, changed_at, channel, kind;
