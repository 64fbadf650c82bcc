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
    SELECT false AS later, w.channel_id, coalesce(before_since, since - (until - since)) AS begins, b.from_time, b.to_time
    FROM chart_gaps(coalesce(before_since, since - (until - since)) - carry, coalesce(before_until, since)) AS b
    JOIN wanted AS w ON w.channel_id = b.channel_id
    WHERE NOT b.backfilled
    UNION ALL
    SELECT true, w.channel_id, since, b.from_time, b.to_time
    FROM chart_gaps(since - carry, until) AS b
    JOIN wanted AS w ON w.channel_id = b.channel_id
    WHERE NOT b.backfilled
),
-- Both intervals with constant bounds, so that no other hours are read.
samples AS (
    SELECT false AS later, s.channel_id, s.time, s.value, following(s.time, s.channel_id) AS next_time,
           following(s.value, s.channel_id) AS next_value
    FROM good_samples(channels, coalesce(before_since, since - (until - since)) - carry, coalesce(before_until, since)) AS s
    UNION ALL
    SELECT true, s.channel_id, s.time, s.value, following(s.time, s.channel_id), following(s.value, s.channel_id)
    FROM good_samples(channels, since - carry, until) AS s
),
-- A value may end at a gap before the next one. Gaps by the hour, so that no sample is compared with all of its channel.
gaps_by_hour AS (
    SELECT b.later, b.channel_id, any_value(hour_of(b.begins - carry)) AS first_hour, hour_of(b.from_time) AS hour, list(b.from_time) AS times
    FROM breaks AS b
    GROUP BY b.later, b.channel_id, hour_of(b.from_time)
),
hours AS (
    SELECT g.later, g.channel_id, unnest(generate_series(any_value(g.first_hour), max(g.hour), INTERVAL '1 hour')) AS hour
    FROM gaps_by_hour AS g
    GROUP BY g.later, g.channel_id
),
next_gaps AS MATERIALIZED (
    SELECT h.later, h.channel_id, h.hour, g.times, min(list_min(g.times)) OVER later_hours AS later_time
    FROM hours AS h
    LEFT JOIN gaps_by_hour AS g ON g.later = h.later AND g.channel_id = h.channel_id AND g.hour = h.hour
    WINDOW later_hours AS (PARTITION BY h.later, h.channel_id ORDER BY h.hour ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING)
),
readings AS (
    SELECT s.*, w.kind,
           coalesce(CASE WHEN n.times IS NOT NULL THEN list_min([t FOR t IN n.times IF t >= s.time]) END, n.later_time) AS gap_time,
           CASE WHEN s.later THEN since ELSE coalesce(before_since, since - (until - since)) END AS begins,
           least(CASE WHEN s.later THEN until ELSE coalesce(before_until, since) END, w.ends) AS ends
    FROM samples AS s
    JOIN wanted AS w ON w.channel_id = s.channel_id
    LEFT JOIN next_gaps AS n ON n.later = s.later AND n.channel_id = s.channel_id AND n.hour = hour_of(s.time)
),
held AS (
    SELECT r.later, r.channel_id, r.kind, r.time, r.value, r.begins, least(r.next_time, r.gap_time) AS next_time,
           least(coalesce(r.next_time, r.ends), r.gap_time, r.ends) AS to_time,
           CASE WHEN (r.gap_time < r.next_time) IS NOT TRUE THEN r.next_value END AS next_value
    FROM readings AS r
),
-- A value holds until the next one; a counter's rate is that between two of its readings.
stretches AS MATERIALIZED (
    SELECT h.later, h.channel_id,
           CASE WHEN h.kind = 'counter' THEN (h.next_value - h.value) / ((epoch_us(h.next_time) - epoch_us(h.time)) / 1e6)
                ELSE h.value END AS level,
           (epoch_us(h.to_time) - epoch_us(greatest(h.time, h.begins))) / 1e6 AS seconds
    FROM held AS h
    WHERE coalesce(h.next_time, h.to_time) > h.begins AND (h.kind <> 'counter' OR h.next_value IS NOT NULL)
),
means AS (
    SELECT t.later, t.channel_id, sum(t.level * t.seconds) / sum(t.seconds) AS mean, sum(t.seconds) AS seconds
    FROM stretches AS t
    GROUP BY t.later, t.channel_id
    HAVING sum(t.seconds) > 0
),
deviations AS (
    SELECT t.later, t.channel_id, t.level - m.mean AS off, t.seconds
    FROM stretches AS t
    JOIN means AS m ON m.later = t.later AND m.channel_id = t.channel_id
),
spreads AS (
    SELECT m.later, m.channel_id, m.mean, sqrt(d.squares / m.seconds) AS spread
    FROM means AS m
    JOIN (SELECT d.later, d.channel_id, sum(d.off * d.off * d.seconds) AS squares
          FROM deviations AS d
          GROUP BY d.later, d.channel_id) AS d ON d.later = m.later AND d.channel_id = m.channel_id
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
    LEFT JOIN spreads AS b ON b.channel_id = w.channel_id AND NOT b.later
    LEFT JOIN spreads AS a ON a.channel_id = w.channel_id AND a.later
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
    LEFT JOIN (SELECT DISTINCT b.channel_id, b.later FROM breaks AS b WHERE b.to_time IS NULL OR b.to_time > b.begins) AS g
      ON g.channel_id = m.channel_id
     AND g.later = CASE WHEN m.mean_b IS NULL THEN false WHEN m.mean_a IS NULL THEN true END
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
