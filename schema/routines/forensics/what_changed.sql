-- what_changed: which channels behave differently than in an earlier interval, most changed first
--
-- Compares time-weighted mean and spread (standard deviation) of two intervals; for a counter, those of its rate, in which
-- resets and wraps count as in increase(). The
-- score is the shift in spreads of the earlier interval, so that channels of all units are ranked together. After a gap
-- the value is unknown until the next sample. A channel without values in one interval comes last, with a note.
--
-- Parameters
--   since         timestamptz  the later interval, from this moment on
--   until         timestamptz  before this moment
--   channels      text[]       names or patterns [all]
--   before_since  timestamptz  start of the earlier interval [same length, directly before]
--   before_until  timestamptz  its end [since]
--   least_score   float8       lowest score to list [3]
--   carry         interval     how far back to look for the value that applies at the start [1 h]
-- Reads from: before_since - carry
-- Judges: numeric channels
-- Cost: one pass over both intervals and carry, sorted by time: 3 s per million samples.
-- Example: SELECT * FROM plant.what_changed('2026-03-09 10:00+00', '2026-03-09 11:00+00');
CREATE OR REPLACE FUNCTION plant.what_changed(
    since timestamptz, until timestamptz, channels text[] DEFAULT NULL, before_since timestamptz DEFAULT NULL,
    before_until timestamptz DEFAULT NULL, least_score float8 DEFAULT 3, carry interval DEFAULT '1 hour'
)
RETURNS TABLE (
    channel text, unit text, change text, score float8, mean_before float8, mean_after float8, spread_before float8,
    spread_after float8
)
LANGUAGE sql STABLE
AS $$
WITH
wanted AS (
    SELECT c.channel_id, c.name, c.kind, c.unit, c.span, c.ends, (w.attributes ->> 'wraps_at')::float8 AS wraps_at
    FROM plant.channels_like(channels) AS c
    JOIN plant.channel AS w ON w.id = c.channel_id
    WHERE c.kind <> 'text'
),
intervals AS (
    SELECT 'before' AS which, coalesce(before_since, since - (until - since)) AS begins, coalesce(before_until, since) AS ends
    UNION ALL
    SELECT 'after', since, until
),
breaks AS MATERIALIZED (
    SELECT i.which, w.channel_id, w.kind, w.wraps_at, i.begins, least(i.ends, w.ends) AS ends, b.from_time, b.to_time
    FROM (SELECT DISTINCT i.*, g.channel_id
          FROM intervals AS i
          JOIN plant.gap_channel AS g ON g.from_time < i.ends AND coalesce(g.to_time, 'infinity') > i.begins - carry
          WHERE g.backfilled_at IS NULL) AS i
    JOIN wanted AS w ON w.channel_id = i.channel_id
    CROSS JOIN LATERAL plant.chart_gaps(w.channel_id, i.begins - carry, i.ends) AS b
    WHERE NOT b.backfilled
),
-- Both with bounds that the planner knows, so that it excludes other chunks.
samples AS (
    SELECT 'before' AS which, coalesce(before_since, since - (until - since)) AS begins,
           least(coalesce(before_until, since), w.ends) AS ends, w.channel_id, w.kind, w.wraps_at, s.time, s.value
    FROM wanted AS w
    CROSS JOIN LATERAL plant.good_samples(w.channel_id, coalesce(before_since, since - (until - since)) - carry,
                                          coalesce(before_until, since)) AS s
    UNION ALL
    SELECT 'after', since, least(until, w.ends), w.channel_id, w.kind, w.wraps_at, s.time, s.value
    FROM wanted AS w
    CROSS JOIN LATERAL plant.good_samples(w.channel_id, since - carry, until) AS s
    UNION ALL
    SELECT b.which, b.begins, b.ends, b.channel_id, b.kind, b.wraps_at, b.from_time, NULL FROM breaks AS b
),
readings AS (
    SELECT s.*, lead(s.time) OVER following AS next_time, lead(s.value) OVER following AS next_value
    FROM samples AS s
    WINDOW following AS (PARTITION BY s.which, s.channel_id ORDER BY s.time, s.value IS NULL)
),
-- A value holds until the next one; a counter's rate is that between two of its readings.
stretches AS (
    SELECT r.which, r.channel_id,
           CASE WHEN r.kind = 'counter'
                THEN plant.counter_increase(r.value, r.next_value, r.wraps_at) / extract(epoch FROM r.next_time - r.time)::float8
                ELSE r.value END AS level,
           extract(epoch FROM least(coalesce(r.next_time, r.ends), r.ends) - greatest(r.time, r.begins))::float8
               AS seconds
    FROM readings AS r
    WHERE least(coalesce(r.next_time, r.ends), r.ends) > greatest(r.time, r.begins) AND r.value IS NOT NULL
      AND (r.kind <> 'counter' OR r.next_value IS NOT NULL)
),
means AS (
    SELECT t.which, t.channel_id, sum(t.level * t.seconds) / sum(t.seconds) AS mean, sum(t.seconds) AS seconds
    FROM stretches AS t
    GROUP BY t.which, t.channel_id
    HAVING sum(t.seconds) > 0
),
spreads AS (
    SELECT m.which, m.channel_id, m.mean, sqrt(sum((t.level - m.mean) ^ 2 * t.seconds) / m.seconds) AS spread
    FROM means AS m
    JOIN stretches AS t ON t.which = m.which AND t.channel_id = m.channel_id
    GROUP BY m.which, m.channel_id, m.mean, m.seconds
),
compared AS (
    SELECT w.channel_id, w.name, w.ends, u.unit, b.mean AS mean_b, a.mean AS mean_a, b.spread AS spread_b, a.spread AS spread_a,
           -- Smaller shifts are not changes: a ten-thousandth of the range, a twentieth of a state.
           greatest(CASE w.kind WHEN 'discrete' THEN 0.05 ELSE coalesce(w.span, abs(b.mean)) * 1e-4 END, 1e-12) AS floor
    FROM wanted AS w
    -- If the unit changed between the intervals, their means cannot be compared: both units are given.
    CROSS JOIN LATERAL (
        SELECT concat_ws(' → ', nullif(nullif(s.before, s.after), ''), s.after) AS unit
        FROM (SELECT plant.unit_at(w.channel_id, coalesce(before_since, since - (until - since))) AS before,
                     plant.unit_at(w.channel_id, until) AS after) AS s
    ) AS u
    LEFT JOIN spreads AS b ON b.channel_id = w.channel_id AND b.which = 'before'
    LEFT JOIN spreads AS a ON a.channel_id = w.channel_id AND a.which = 'after'
    WHERE b.mean IS NOT NULL OR a.mean IS NOT NULL
),
measured AS (
    SELECT c.*, abs(c.mean_a - c.mean_b) / greatest(c.spread_b, c.floor) AS shift,
           -- Twice or half the spread counts as one and a half, four times or a quarter as three.
           1.5 * log(2, (greatest(c.spread_a, c.floor) / greatest(c.spread_b, c.floor))::numeric)::float8 AS widening
    FROM compared AS c
),
judged AS (
    SELECT m.*, CASE WHEN g.channel_id IS NOT NULL AND m.mean_b IS NULL THEN 'no samples before: gap'
                     WHEN g.channel_id IS NOT NULL AND m.mean_a IS NULL THEN 'no samples: gap'
                     WHEN m.mean_b IS NULL THEN 'appeared'
                     WHEN m.mean_a IS NULL THEN CASE WHEN m.ends < until THEN 'retired' ELSE 'fell silent' END
                     WHEN m.shift >= abs(m.widening) THEN CASE WHEN m.mean_a > m.mean_b THEN 'higher' ELSE 'lower' END
                     WHEN m.widening > 0 THEN 'restless'
                     ELSE 'calmer' END AS change,
           CASE WHEN m.shift IS NOT NULL THEN greatest(m.shift, abs(m.widening)) END AS score
    FROM measured AS m
    LEFT JOIN (SELECT DISTINCT b.channel_id, b.which FROM breaks AS b WHERE b.to_time IS NULL OR b.to_time > b.begins) AS g
      ON g.channel_id = m.channel_id
     AND g.which = CASE WHEN m.mean_b IS NULL THEN 'before' WHEN m.mean_a IS NULL THEN 'after' END
)
SELECT j.name, j.unit, j.change, j.score, j.mean_b, j.mean_a, j.spread_b, j.spread_a
FROM judged AS j
WHERE j.score >= least_score OR j.score IS NULL
ORDER BY j.change LIKE 'no samples%', j.score DESC NULLS FIRST, j.name
$$;
