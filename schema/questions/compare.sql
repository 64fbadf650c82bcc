-- compare: where a run of a plant differs from an earlier one, as two start-ups, aligned at their starts
--
-- Means are compared at those times after both starts, up to "warp" apart, at which the channels of the unit together
-- differ least: a phase that takes longer is no difference, but with a warp of 0 s it is. A difference counts in three
-- means or more, if it is more than 8 robust spreads of the steps between means, and more than a 20th of what the
-- channel does in the runs. The largest one comes first.
--
-- from_time is where the first mean begins that differs, to_time where the last one ends (NULL: it lasts until the
-- end); seconds_after_start is from_time after since, never negative. score is the largest difference in limits, never
-- negative: 1 is the limit (NULL: the channel stood in both runs). value and other_value are those at that time (at)
-- and at the time of the earlier run that it was compared with (other_at). A channel with fewer than three means in the
-- run, or ten in the earlier one, is not judged. If a part of the earlier run alone is unlike the rest of it, ask says
-- so.
--
-- Parameters
--   since      timestamptz  start of the run
--   until      timestamptz  its end
--   channels   text[]       names or patterns [NULL: all analog ones]
--   reference  reference    the earlier run: FROM..TO, or a time before [NULL: as long as the interval]
--   step       interval     length of a mean [NULL: a 500th of the interval, at least the sampling interval]
--   warp       interval     how far the runs may be out of step, at most 500 means [NULL: a 10th of the interval]
-- Legal: step a 1000000th..interval, warp 0 s..interval
-- Shown first: channel, from_time, to_time, score, value, other_value, unit
-- Reads from: reference
-- Portions: unit
-- Cost: one pass over both runs, then 10 µs per mean of a unit and 100 steps of warp.
-- Example: plantlog ask compare --from 2026-03-09T10Z --to 2026-03-09T11Z --reference 2026-03-08T10Z..2026-03-08T11Z
WITH
earlier AS (
    -- With what comes after it, as far as it may be out of step: not with the run itself.
    SELECT reference[1] AS begins,
           CASE WHEN reference[2] <= since THEN least(reference[2] + warp, since) ELSE reference[2] + warp END AS ends
),
analog AS (
    SELECT g.channel_id, g.name, g.fields, dense_rank() OVER (ORDER BY c.unit_path)::INT AS number
    FROM channels_with_gaps(channels, least(since, reference[1]), greatest(until, reference[2] + warp)) AS g
    JOIN channels_like(channels) AS c ON c.channel_id = g.channel_id
    WHERE g.kind = 'analog'
),
differences AS (
    SELECT unnest(differences_of(a.fields, a.numbers, [epoch_us(e.begins), epoch_us(e.ends)], epoch_us(since),
                                 epoch_us(until), epoch_us(step), epoch_us(warp)), recursive := true)
    FROM (SELECT list(g.fields ORDER BY g.channel_id) AS fields, list(g.number ORDER BY g.channel_id) AS numbers
          FROM analog AS g
          HAVING count(*) > 0) AS a
    CROSS JOIN earlier AS e
)
SELECT c.name AS channel, d.from_time, d.to_time,
       (epoch_us(d.from_time) - epoch_us(since)) / 1e6 AS seconds_after_start, d.score, d.peak_time AS "at", d.value,
       d.other_time AS other_at, d.other AS other_value,
       unit_at(d.channel_id, d.peak_time, patterns := channels) AS unit,
       CASE WHEN d.verdict IS NOT NULL THEN verdict_text(d.verdict) END AS verdict
FROM differences AS d
JOIN analog AS c ON c.channel_id = d.channel_id;

SELECT * EXCLUDE (verdict)
FROM portion_rows
WHERE verdict IS NULL
ORDER BY round(score, 6) DESC, from_time, channel;
