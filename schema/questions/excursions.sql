-- excursions: where channels left their usual band: spikes, swings and drift
--
-- Each channel is split into three frequency classes, each compared with its own spread before since:
--   fast    samples compared with the means of "short" around them: spikes, dropouts, noise
--   medium  means of "short" compared with those of "long": swings, steps
--   slow    means of "long" compared with the mean before since: drift, another operating point
-- Of equal peaks, the first one is shown. sigmas_at_peak is NULL, and the row last, if the channel did not move before
-- since: nothing can be measured by a spread of zero.
--
-- Parameters
--   since      timestamptz  from this moment on
--   until      timestamptz  before this moment
--   channels   text[]       names or patterns [NULL: all analog ones]
--   sigmas     float8       minimum deviation in spreads; half of it for slow [8]
--   short      interval     length of a short mean [NULL: 10 s, 3 sampling intervals]
--   long       interval     length of a long mean [NULL: 5 min, 60 sampling intervals]
--   reference  interval     time before since from which the usual band is learned [NULL: 1 h, 300 sampling intervals]
-- Reads from: since - reference
-- Judges: analog channels with samples before since
-- Portions: channel
-- Cost: one pass over the channels' samples from since - reference to until: 3 s per million samples.
-- Example: plantlog ask excursions --from 2026-03-09T10:00Z --to 2026-03-09T11:00Z --sigmas 10
WITH
-- All that is asked of single samples.
far_off AS (
    SELECT unnest(far_samples(a.fields, epoch_us(since - reference), epoch_us(since), epoch_us(until), epoch_us(short),
                              epoch_us(long), sigmas), recursive := true)
    FROM (SELECT list(g.fields) AS fields
          FROM channels_with_gaps(channels, since, until) AS g
          WHERE g.kind = 'analog'
          HAVING count(*) > 0) AS a
),
scaled AS (
    SELECT f.channel_id, f.time, f.value, f.spread, f.is_known,
           CASE f.scale WHEN 0 THEN 'fast' WHEN 1 THEN 'medium' ELSE 'slow' END AS class,
           CASE f.scale WHEN 0 THEN short WHEN 1 THEN to_microseconds(epoch_us(long) // 4) ELSE 2 * long END AS apart
    FROM far_off AS f
),
outside AS (
    SELECT f.channel_id, f.class, f.time, f.value, abs(f.value) / f.spread AS far, f.is_known,
           f.time - lag(f.time) OVER (PARTITION BY f.channel_id, f.class ORDER BY f.time) > f.apart AS begins
    FROM scaled AS f
),
numbered AS (
    SELECT o.*, count(*) FILTER (WHERE o.begins) OVER (PARTITION BY o.channel_id, o.class ORDER BY o.time) AS episode
    FROM outside AS o
),
episodes AS (
    SELECT n.channel_id, n.class, n.episode, min(n.time) AS begins, max(n.time) AS ends, max(n.far) AS far,
           bool_and(n.is_known) AS is_known, first(n.value ORDER BY round(n.far, 6) DESC, n.time) AS peak,
           first(n.time ORDER BY round(n.far, 6) DESC, n.time) AS peak_at
    FROM numbered AS n
    GROUP BY n.channel_id, n.class, n.episode
),
spaced AS (
    SELECT e.*, e.begins - lag(e.begins) OVER (PARTITION BY e.channel_id, e.class ORDER BY e.begins) AS since_last
    FROM episodes AS e
)
SELECT c.name AS channel, s.class, count(*) AS episodes, min(s.begins) AS first_at, max(s.begins) AS last_at,
       to_microseconds(quantile_cont(epoch_us(s.since_last)::DOUBLE, 0.5)::BIGINT) AS usual_period,
       max(s.ends - s.begins) AS longest, first(s.peak ORDER BY round(s.far, 6) DESC, s.peak_at) AS peak,
       first(s.peak_at ORDER BY round(s.far, 6) DESC, s.peak_at) AS peak_at,
       CASE WHEN bool_and(s.is_known) THEN max(s.far) END AS sigmas_at_peak
FROM spaced AS s
JOIN channels_like(channels) AS c ON c.channel_id = s.channel_id
GROUP BY c.name, s.class;

SELECT *
FROM portion_rows
ORDER BY round(sigmas_at_peak, 6) DESC NULLS LAST, channel, class;
