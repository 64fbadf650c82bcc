-- what_changed for DuckDB: as ../what_changed.sql, which has the parameters
--
-- Portions: channel
CREATE MACRO what_changed_of(since, until, channels, before_since, before_until, least_score, carry) AS TABLE
WITH
wanted AS (
    SELECT c.channel_id, c.name, c.kind, c.unit, c.span, c.ends
    FROM channels_like(channels) AS c
    WHERE c.kind <> 'text'
),
breaks AS MATERIALIZED (
    SELECT 'before' AS which, w.channel_id, w.kind, coalesce(before_since, since - (until - since)) AS begins,
           least(coalesce(before_until, since), w.ends) AS ends, b.from_time, b.to_time
    FROM chart_gaps(coalesce(before_since, since - (until - since)) - carry, coalesce(before_until, since)) AS b
    JOIN wanted AS w ON w.channel_id = b.channel_id
    WHERE NOT b.backfilled
    UNION ALL
    SELECT 'after', w.channel_id, w.kind, since, least(until, w.ends), b.from_time, b.to_time
    FROM chart_gaps(since - carry, until) AS b
    JOIN wanted AS w ON w.channel_id = b.channel_id
    WHERE NOT b.backfilled
),
-- Both with constant bounds, so that no other hours are read.
samples AS (
    SELECT 'before' AS which, coalesce(before_since, since - (until - since)) AS begins,
           least(coalesce(before_until, since), w.ends) AS ends, w.channel_id, w.kind, s.time, s.value
    FROM wanted AS w
    JOIN good_samples(channels, coalesce(before_since, since - (until - since)) - carry, coalesce(before_until, since)) AS s
      ON s.channel_id = w.channel_id
    UNION ALL
    SELECT 'after', since, least(until, w.ends), w.channel_id, w.kind, s.time, s.value
    FROM wanted AS w
    JOIN good_samples(channels, since - carry, until) AS s ON s.channel_id = w.channel_id
    UNION ALL
    SELECT b.which, b.begins, b.ends, b.channel_id, b.kind, b.from_time, NULL FROM breaks AS b
),
readings AS (
    SELECT s.*, lead(s.time) OVER following AS next_time, lead(s.value) OVER following AS next_value
    FROM samples AS s
    WINDOW following AS (PARTITION BY s.which, s.channel_id ORDER BY s.time, s.value IS NULL)
),
-- A value holds until the next one; a counter's rate is that between two of its readings.
stretches AS (
    SELECT r.which, r.channel_id,
           CASE WHEN r.kind = 'counter' THEN (r.next_value - r.value) / ((epoch_us(r.next_time) - epoch_us(r.time)) / 1e6)
                ELSE r.value END AS level,
           (epoch_us(least(coalesce(r.next_time, r.ends), r.ends)) - epoch_us(greatest(r.time, r.begins))) / 1e6 AS seconds
    FROM readings AS r
    WHERE coalesce(r.next_time, r.ends) > r.begins AND r.value IS NOT NULL
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
        FROM (SELECT unit_at(w.channel_id, coalesce(before_since, since - (until - since))) AS before,
                     unit_at(w.channel_id, until) AS after) AS s
    ) AS u
    LEFT JOIN spreads AS b ON b.channel_id = w.channel_id AND b.which = 'before'
    LEFT JOIN spreads AS a ON a.channel_id = w.channel_id AND a.which = 'after'
    WHERE b.mean IS NOT NULL OR a.mean IS NOT NULL
),
measured AS (
    SELECT c.*, abs(c.mean_a - c.mean_b) / greatest(c.spread_b, c.floor) AS shift,
           -- Twice or half the spread counts as one and a half, four times or a quarter as three.
           1.5 * log2(greatest(c.spread_a, c.floor) / greatest(c.spread_b, c.floor)) AS widening
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
SELECT j.name AS channel, j.unit, j.change, j.score, j.mean_b AS mean_before, j.mean_a AS mean_after,
       j.spread_b AS spread_before, j.spread_a AS spread_after
FROM judged AS j
WHERE j.score >= least_score OR j.score IS NULL;

CREATE MACRO what_changed(
    since, until, channels := NULL, before_since := NULL, before_until := NULL, least_score := 3, carry := '1 hour'
) AS TABLE
WITH found AS (
    FROM what_changed_of(since::TIMESTAMPTZ, until::TIMESTAMPTZ, channels::TEXT[], before_since::TIMESTAMPTZ,
                         before_until::TIMESTAMPTZ, least_score::DOUBLE, carry::INTERVAL)
)
FROM found
ORDER BY change LIKE 'no samples%', score DESC, channel;
