-- replayed_signals: where a channel repeats an earlier segment of itself, exactly or scaled
--
-- Noise never repeats: a segment that does was recorded and replayed. Each sample gets a hash of the ratio of its step
-- to the previous step, which scaling and offset do not change; the hash of a window is the sum over its consecutive
-- samples. Windows with the hash of an earlier one are joined to segments of equal distance, in samples or, where some
-- are missing, in time. A segment is listed only if its values are a + b × those of the original.
--
-- A segment is listed from the length on from which one in a million channels has a copy by chance. That follows from
-- how often a channel has each ratio: 16 samples of a fine signal, and some 60 of one whose steps have three sizes.
-- Ramps and start-ups repeat naturally. Therefore at least half of a segment's samples, and at least "samples" of them
-- where that is set, must differ from the previous one, and a segment must rise and fall as noise does, but for an
-- exact one of 60 such samples. A scaled copy that is rounded to few digits is not found; an exact copy is.
--
-- The values of the copy are "offset" + scale × those of the original: a positive offset shifts up, a negative scale
-- turns upside down. copied counts samples; largest_difference is how far one is from that, never negative.
--
-- Parameters
--   since      timestamptz  copies from this moment on
--   until      timestamptz  before this moment
--   channels   text[]       names or patterns [NULL: all analog ones]
--   samples    int          shortest segment, in samples that changed [NULL: by chance, as above]
--   tolerance  float8       largest difference of a scaled copy, as a share of its usual step [0.05]
--   lookback   interval     how far to look back [NULL: 1 h, 300 sampling intervals, 10 times the interval up to 36 h]
-- Legal: samples 1.., tolerance 0.., lookback 0 s..100 years
-- Reads from: since - lookback
-- Judges: analog channels
-- Portions: channel
-- Cost: one pass over the channels' samples from since - lookback to until and two sorts: 4 s per million samples.
-- Example: plantlog ask replayed_signals --from 2026-03-09T10:00Z --to 2026-03-09T11:00Z
WITH
selected AS (
    SELECT c.channel_id, c.name FROM channels_like(channels) AS c WHERE c.kind = 'analog'
),
-- Each sample of a copy, and the one that it is a copy of.
pairs AS MATERIALIZED (
    SELECT unnest(replays(a.channels, epoch_us(since - lookback), epoch_us(since), epoch_us(until),
                          coalesce(samples, 0)), recursive := true)
    FROM (SELECT list(s.channel_id) AS channels FROM selected AS s HAVING count(*) > 0) AS a
),
fits AS (
    SELECT p.channel_id, p.segment, regr_slope(p.value, p.old_value) AS scale,
           regr_intercept(p.value, p.old_value) AS shift,
           quantile_cont(abs(p.step), 0.5) AS usual_step,
           count(*) FILTER (WHERE p.value <> p.old_value) AS unequal, count(*) FILTER (WHERE p.step <> 0) AS changed,
           count(*) FILTER (WHERE p.turns) AS turns, count(*) AS n
    FROM pairs AS p
    GROUP BY p.channel_id, p.segment
),
verified AS (
    SELECT f.channel_id, f.segment, f.n, f.changed, f.turns, f.unequal, f.usual_step,
           CASE WHEN f.unequal = 0 THEN 1 ELSE f.scale END AS scale,
           CASE WHEN f.unequal = 0 THEN 0 ELSE f.shift END AS shift,
           min(p.time) AS copy_from, max(p.time) AS copy_to, min(p.old_time) AS old_from, max(p.old_time) AS old_to,
           max(CASE WHEN f.unequal = 0 THEN 0 ELSE abs(p.value - f.scale * p.old_value - f.shift) END) AS difference
    FROM fits AS f
    JOIN pairs AS p ON p.channel_id = f.channel_id AND p.segment = f.segment
    GROUP BY f.channel_id, f.segment, f.n, f.changed, f.turns, f.unequal, f.usual_step, f.scale, f.shift
)
SELECT s.name AS channel, v.copy_from, v.copy_to, v.old_from AS original_from, v.old_to AS original_to, v.n AS copied,
       CASE WHEN v.unequal = 0 THEN 'exact' ELSE 'scaled' END AS what, v.scale, v.shift AS "offset",
       v.difference AS largest_difference
FROM verified AS v
JOIN selected AS s ON s.channel_id = v.channel_id
WHERE v.changed >= coalesce(samples, 0) AND v.changed * 2 >= v.n
  AND (v.turns * 8 >= v.n OR v.unequal = 0 AND v.changed >= coalesce(samples, 60))
  AND v.difference <= tolerance * v.usual_step;

SELECT *
FROM portion_rows
ORDER BY copied DESC, channel, copy_from;
