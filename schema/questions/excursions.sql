-- excursions: where channels left their usual band: spikes, swings and drift
--
-- Each channel is looked at on three time scales:
--   fast    samples compared with the median of them and their two neighbours: spikes, dropouts, noise
--   medium  means of "short" compared with those before them: swings, steps
--   slow    means of "long" compared with those before them: drift, another operating point
-- An excursion is farther than they deviate by chance: the limit is set by the largest deviations in the reference
-- (as for first_mover); what a change before the interval leaves in the means is none. Where the reference is too short
-- for "long", slow means are as long as it allows, or none. Of rounded values, two steps are usual for a sample, and
-- one for a mean; how values are rounded that the reference only held is learned from the interval.
-- Means are whole: what is left of the interval behind the last one is only looked at sample by sample.
-- What was first outside comes first. The peak is the largest excursion, of means in the direction of the first one: a
-- return from a fault is another excursion. Of equal peaks, the first one is shown. times_limit says how far the peak
-- is, in limits, never negative (peak has the sign): 1 is the limit; it is NULL, and the row last, where the channel
-- did not deviate at all before: nothing can be measured by that. Times are those of samples.
--
-- Parameters
--   since         timestamptz  from this moment on
--   until         timestamptz  before this moment
--   channels      text[]       names or patterns [NULL: all analog ones]
--   short         interval     length of a short mean [NULL: 3 sampling intervals]
--   long          interval     length of a long mean [NULL: 60 sampling intervals]
--   reference     reference    FROM..TO, or length [NULL: 1 h, 300 sampling intervals, 10 times the interval up to 1 d]
--   false_alarms  interval     mean time between false alarms of all channels together [NULL: 20 times the interval]
-- Legal: short 1 us..long, long 1 us..100 years, false_alarms 1 us..100 years
-- Shown first: channel, class, first_at, peak, peak_at, times_limit
-- Reads from: reference
-- Portions: channel
-- Cost: one pass over the channels' samples from the reference to until: 3 s per million samples.
-- Example: plantlog ask excursions --from 2026-03-09T10:00Z --to 2026-03-09T11:00Z --false-alarms '7 days'
WITH
-- All that is asked of single samples.
far_off AS (
    SELECT unnest(far_samples(a.fields, in_us(reference), epoch_us(since), epoch_us(until), epoch_us(short),
                              epoch_us(long), epoch_us(false_alarms)::DOUBLE), recursive := true)
    FROM fields_of(channels, least(since, reference[1]), greatest(until, reference[2]), ['analog']) AS a
),
outside AS (
    SELECT f.channel_id, f.scale, f.time, f.value, nullif(f.times, 'NaN') AS times,
           f.scale = 0 OR sign(f.value) = first_value(sign(f.value)) OVER (PARTITION BY f.channel_id, f.scale
                                                                           ORDER BY f.time) AS counts,
           f.time - lag(f.time) OVER (PARTITION BY f.channel_id, f.scale ORDER BY f.time)
               > CASE f.scale WHEN 0 THEN short ELSE to_microseconds(epoch_us(long) // 4) END AS begins
    FROM far_off AS f
    WHERE f.verdict = 0
),
numbered AS (
    SELECT o.*, count(*) FILTER (WHERE o.begins) OVER (PARTITION BY o.channel_id, o.scale ORDER BY o.time) AS episode
    FROM outside AS o
),
episodes AS (
    SELECT n.channel_id, n.scale, n.episode, min(n.time) AS begins, max(n.time) AS ends,
           max(n.times) FILTER (WHERE n.counts) AS times,
           first(n.value ORDER BY round(abs(n.value), 6) DESC, n.time) FILTER (WHERE n.counts) AS peak,
           first(n.time ORDER BY round(abs(n.value), 6) DESC, n.time) FILTER (WHERE n.counts) AS peak_at
    FROM numbered AS n
    GROUP BY n.channel_id, n.scale, n.episode
),
spaced AS (
    SELECT e.*, e.begins - lag(e.begins) OVER (PARTITION BY e.channel_id, e.scale ORDER BY e.begins) AS since_last
    FROM episodes AS e
)
SELECT c.name AS channel, CASE s.scale WHEN 0 THEN 'fast' WHEN 1 THEN 'medium' ELSE 'slow' END AS class,
       count(*) AS episodes, min(s.begins) AS first_at, max(s.begins) AS last_at,
       to_microseconds(quantile_cont(epoch_us(s.since_last)::DOUBLE, 0.5)::BIGINT) AS usual_period,
       max(s.ends - s.begins) AS longest,
       first(s.peak ORDER BY round(abs(s.peak), 6) DESC NULLS LAST, s.peak_at) AS peak,
       first(s.peak_at ORDER BY round(abs(s.peak), 6) DESC NULLS LAST, s.peak_at) AS peak_at,
       max(s.times) AS times_limit, NULL AS verdict
FROM spaced AS s
JOIN channels_like(channels) AS c ON c.channel_id = s.channel_id
GROUP BY c.name, s.scale
UNION ALL
SELECT c.name, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
       CASE WHEN c.kind = 'analog' THEN verdict_text(v.verdict) ELSE 'not judged, not analog' END
FROM channels_like(channels) AS c
LEFT JOIN (SELECT f.channel_id, f.verdict FROM far_off AS f WHERE f.verdict > 0) AS v ON v.channel_id = c.channel_id;

SELECT * EXCLUDE (verdict)
FROM portion_rows
WHERE verdict IS NULL
ORDER BY times_limit IS NULL, first_at, round(times_limit, 6) DESC, channel, class;
