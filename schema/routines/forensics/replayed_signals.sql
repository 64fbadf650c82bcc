-- replayed_signals: where a channel repeats an earlier segment of itself, exactly or scaled
--
-- Noise never repeats: a segment that does was recorded and replayed. Each sample gets a hash of the ratio of its step
-- to the previous step, which scaling and offset do not change; the hash of a window is the sum over its consecutive
-- samples. Windows with the hash of an earlier one are joined to segments of equal distance. A segment is listed only
-- if its values are a + b × those of the original.
--
-- Ramps and start-ups repeat naturally. Therefore at least half of a segment's samples, and at least "samples" of them,
-- must differ from the previous one, and a scaled segment must rise and fall as noise does. A scaled copy that is
-- rounded to few digits is not found; an exact copy always is.
--
-- Parameters
--   since      timestamptz  copies from this moment on
--   until      timestamptz  before this moment
--   channels   text[]       names or patterns [all analog ones]
--   samples    int          shortest segment, in samples that changed [60]
--   tolerance  float8       largest difference of a scaled copy, as a share of its usual step [0.05]
--   lookback   interval     how far before since to look for the original [1 h]
-- Reads from: since - lookback
-- Judges: analog channels
-- Cost: one pass over the channels' samples from since - lookback to until and two sorts: 4 s per million samples.
-- Example: SELECT * FROM plant.replayed_signals('2026-03-09 10:00+00', '2026-03-09 11:00+00');
CREATE OR REPLACE FUNCTION plant.replayed_signals(
    since timestamptz, until timestamptz, channels text[] DEFAULT NULL, samples int DEFAULT 60,
    tolerance float8 DEFAULT 0.05, lookback interval DEFAULT '1 hour'
)
RETURNS TABLE (
    channel text, copy_from timestamptz, copy_to timestamptz, original_from timestamptz, original_to timestamptz,
    copied bigint, what text, scale float8, "offset" float8, largest_difference float8
)
LANGUAGE sql STABLE
AS $$
WITH
wanted AS (
    SELECT c.channel_id, c.name FROM plant.channels_like(channels) AS c WHERE c.kind = 'analog'
),
-- Positions are numbered across all channels, so that one key finds a sample.
readings AS MATERIALIZED (
    SELECT w.channel_id, s.time, s.value, row_number() OVER (ORDER BY w.channel_id, s.time) AS position,
           s.value - lag(s.value) OVER per_channel AS step
    FROM wanted AS w
    CROSS JOIN LATERAL plant.good_samples(w.channel_id, since - lookback, until) AS s
    WINDOW per_channel AS (PARTITION BY w.channel_id ORDER BY s.time)
),
ratios AS (
    SELECT r.channel_id, r.time, r.position, r.step, r.step / nullif(lag(r.step) OVER per_channel, 0) AS ratio
    FROM readings AS r
    WINDOW per_channel AS (PARTITION BY r.channel_id ORDER BY r.position)
),
-- The logarithm is rounded coarsely, so that the last bits of a scaled copy don't matter.
hashes AS (
    SELECT r.channel_id, r.time, r.position, (r.step <> 0)::int AS changed,
           CASE WHEN r.ratio IS NULL OR r.ratio = 0 THEN coalesce(sign(r.step) ^ 2, 0)::bigint
                ELSE hashint8extended(round(8 * ln(abs(r.ratio)))::bigint, CASE WHEN r.ratio > 0 THEN 17 ELSE 42 END)
                     % 1000000007 -- so that sums stay small
           END AS hash
    FROM ratios AS r
),
windows AS (
    SELECT h.channel_id, h.time, h.position, sum(h.hash) OVER last_16 AS hash, sum(h.changed) OVER last_16 AS changed,
           count(*) OVER last_16 AS n
    FROM hashes AS h
    WINDOW last_16 AS (PARTITION BY h.channel_id ORDER BY h.position ROWS BETWEEN 15 PRECEDING AND CURRENT ROW)
),
-- The latest earlier window of the same hash that does not overlap.
repeated AS (
    SELECT w.channel_id, w.time, w.position,
           w.position - max(w.position) OVER (PARTITION BY w.channel_id, w.hash ORDER BY w.position
                                              RANGE BETWEEN UNBOUNDED PRECEDING AND 16 PRECEDING) AS distance
    FROM windows AS w
    WHERE w.n = 16 AND w.changed >= 12
),
breaks AS (
    SELECT r.channel_id, r.distance, r.position,
           r.position - lag(r.position) OVER same_distance > 48 AS apart
    FROM repeated AS r
    WHERE r.distance IS NOT NULL AND r.time >= since
    WINDOW same_distance AS (PARTITION BY r.channel_id, r.distance ORDER BY r.position)
),
numbered AS (
    SELECT b.*, count(*) FILTER (WHERE b.apart) OVER same_distance AS stretch
    FROM breaks AS b
    WINDOW same_distance AS (PARTITION BY b.channel_id, b.distance ORDER BY b.position)
),
stretches AS (
    -- The hash of a window's first two samples depends on samples before it.
    SELECT n.channel_id, n.distance, n.stretch, min(n.position) - 15 AS first, max(n.position) AS last
    FROM numbered AS n
    GROUP BY n.channel_id, n.distance, n.stretch
    HAVING max(n.position) - min(n.position) + 16 >= samples
),
-- With the original's position as a column, so that the join uses a plain key, however few rows are expected.
copies AS MATERIALIZED (
    SELECT t.channel_id, t.distance, t.stretch, r.position, r.position - t.distance AS old_position, r.time,
           r.value, r.step
    FROM stretches AS t
    JOIN readings AS r ON r.channel_id = t.channel_id AND r.position BETWEEN t.first AND t.last
),
pairs AS MATERIALIZED (
    SELECT c.channel_id, c.distance, c.stretch, c.time, c.value, c.step, o.time AS old_time, o.value AS old_value,
           sign(c.step) * sign(lag(c.step) OVER stretch) < 0 AS turns
    FROM copies AS c
    JOIN readings AS o ON o.position = c.old_position
    WINDOW stretch AS (PARTITION BY c.channel_id, c.distance, c.stretch ORDER BY c.position)
),
fits AS (
    SELECT p.channel_id, p.distance, p.stretch, regr_slope(p.value, p.old_value) AS scale,
           regr_intercept(p.value, p.old_value) AS shift,
           percentile_cont(0.5) WITHIN GROUP (ORDER BY abs(p.step)) AS usual_step,
           count(*) FILTER (WHERE p.value <> p.old_value) AS unequal, count(*) FILTER (WHERE p.step <> 0) AS changed,
           count(*) FILTER (WHERE p.turns) AS turns, count(*) AS n
    FROM pairs AS p
    GROUP BY p.channel_id, p.distance, p.stretch
),
verified AS (
    SELECT f.channel_id, f.distance, f.stretch, f.n, f.changed, f.turns, f.unequal, f.usual_step,
           CASE WHEN f.unequal = 0 THEN 1 ELSE f.scale END AS scale,
           CASE WHEN f.unequal = 0 THEN 0 ELSE f.shift END AS shift,
           min(p.time) AS copy_from, max(p.time) AS copy_to, min(p.old_time) AS old_from, max(p.old_time) AS old_to,
           max(CASE WHEN f.unequal = 0 THEN 0 ELSE abs(p.value - f.scale * p.old_value - f.shift) END) AS difference
    FROM fits AS f
    JOIN pairs AS p ON p.channel_id = f.channel_id AND p.distance = f.distance AND p.stretch = f.stretch
    GROUP BY f.channel_id, f.distance, f.stretch, f.n, f.changed, f.turns, f.unequal, f.usual_step, f.scale, f.shift
)
SELECT w.name, v.copy_from, v.copy_to, v.old_from, v.old_to, v.n,
       CASE WHEN v.unequal = 0 THEN 'exact' ELSE 'scaled' END, v.scale, v.shift, v.difference
FROM verified AS v
JOIN wanted AS w ON w.channel_id = v.channel_id
WHERE v.changed >= samples AND v.changed * 2 >= v.n
  AND (v.unequal = 0 OR (v.difference <= tolerance * v.usual_step AND v.turns * 8 >= v.n))
ORDER BY v.n DESC, w.name, v.copy_from
$$;
