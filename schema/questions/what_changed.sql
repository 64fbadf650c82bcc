-- what_changed: which channels behave differently than in an earlier interval, most changed first
--
-- Compares time-weighted mean and spread (standard deviation) of two intervals; for a counter, those of its rate, in
-- which resets and wraps count as in the aggregate increase. A change counts where it is larger than by chance: how far
-- parts of the earlier interval differ, from each other and the whole, sets the limit of each channel. The score is the
-- shift in limits, or that of the logarithm of the spread, if it is more: 1 is the limit. It is never negative: the
-- column change says whether it rose. After a gap or a Bad sample the value is unknown until the next good one. A
-- channel without values in one interval comes last, with a note. One that was constant before, such as a set point,
-- comes first, without a score: no chance explains its change, and there is no spread to measure it by. A state that
-- was constant has a new state then. A line below the answer says which channels drift all through the earlier
-- interval, as by a daily swing, or have three or four cycles in it: a longer one has more of them.
--
-- Parameters
--   since         timestamptz  the later interval, from this moment on
--   until         timestamptz  before this moment
--   channels      text[]       names or patterns [NULL: all but texts]
--   reference     reference    the earlier interval: FROM..TO, or a time before [NULL: as long as the interval]
--   false_alarms  interval     mean time between false rows of all channels together [NULL: 20 times the interval]
--   least_score   float8       lowest score to list [1]
--   habits        boolean      list also what came at the same time on days before [false]
--   carry         interval     how far back to look for the value at the start [NULL: 1 h, 300 sampling intervals]
-- Legal: false_alarms 1 us..100 years, least_score 0.., carry 0 s..100 years
-- Reads from: reference - carry
-- Portions: channel
-- Cost: one pass over both intervals and carry, sorted by time: 3 s per million samples.
-- Example: plantlog ask what_changed --from 2026-03-09T10:00Z --to 2026-03-09T11:00Z
WITH
selected AS (
    SELECT c.channel_id, c.name, c.kind, c.unit, c.span, c.ends, c.wraps_at, c.pushed
    FROM channels_like(channels) AS c
    WHERE c.kind <> 'text'
),
-- Both intervals, with what is needed of the time before.
intervals AS (
    SELECT false AS later, reference[1] AS begins, reference[2] AS ends
    UNION ALL
    SELECT true, since, until
),
breaks AS MATERIALIZED (
    SELECT false AS later, sel.channel_id, reference[1] AS begins, b.from_time, b.to_time
    FROM chart_gaps(channels, reference[1] - carry, reference[2]) AS b
    JOIN selected AS sel ON sel.channel_id = b.channel_id
    WHERE NOT b.backfilled
    UNION ALL
    SELECT true, sel.channel_id, since, b.from_time, b.to_time
    FROM chart_gaps(channels, least(reference[1], since) - carry, until) AS b
    JOIN selected AS sel ON sel.channel_id = b.channel_id
    WHERE NOT b.backfilled
),
gaps AS (
    SELECT b.later, b.channel_id, list(epoch_us(b.from_time) ORDER BY b.from_time) AS begins,
           list(coalesce(epoch_us(b.to_time), 9223372036854775807) ORDER BY b.from_time) AS ends
    FROM breaks AS b
    GROUP BY b.later, b.channel_id
),
-- A value holds until the next one or a gap; a counter's rate is that between two of its readings.
requested AS (
    SELECT i.later, i.begins, i.ends,
           CASE WHEN NOT i.later THEN epoch_us(until) - epoch_us(since) END AS compared,
           list({'channel_id': sel.channel_id, 'kind': sel.kind, 'span': sel.span, 'wraps_at': sel.wraps_at,
                 'ends': epoch_us(least(i.ends, sel.ends)),
                 'gaps_from': coalesce(g.begins, []::BIGINT[]), 'gaps_to': coalesce(g.ends, []::BIGINT[]),
                 'pushed': sel.pushed}) AS channels
    FROM intervals AS i
    CROSS JOIN selected AS sel
    LEFT JOIN gaps AS g ON g.later = i.later AND g.channel_id = sel.channel_id
    GROUP BY i.later, i.begins, i.ends
),
spreads AS MATERIALIZED (
    SELECT unnest(weighted_statistics_of(a.intervals), recursive := true)
    FROM (SELECT list({'later': a.later, 'first': epoch_us(a.begins - carry), 'since': epoch_us(a.begins),
                       'until': epoch_us(a.ends), 'compared': a.compared,
                       -- Two statistics share the false rows of a channel.
                       'share': a.compared / epoch_us(false_alarms)::DOUBLE / 2, 'channels': a.channels}) AS intervals
          FROM requested AS a
          HAVING count(*) > 0) AS a
),
compared AS MATERIALIZED (
    SELECT sel.channel_id, sel.name, sel.kind, sel.ends, u.unit, b.mean AS mean_b, a.mean AS mean_a,
           b.spread AS spread_b, a.spread AS spread_a, b.mean_limit, b.spread_limit, b.verdict,
           -- Smaller shifts are not changes: a twentieth of a state, a ten-thousandth of a rate or the range.
           greatest(CASE sel.kind WHEN 'discrete' THEN 0.05
                                  WHEN 'counter' THEN abs(b.mean) * 1e-4
                                  ELSE coalesce(sel.span, abs(b.mean)) * 1e-4 END, 1e-12) AS floor
    FROM selected AS sel
    -- If the unit changed between the intervals, their means cannot be compared: both units are given.
    CROSS JOIN LATERAL (
        SELECT concat_ws(' → ', nullif(nullif(s.before, s.after), ''), s.after) AS unit
        FROM (SELECT unit_at(sel.channel_id, reference[1], patterns := channels) AS before,
                     unit_at(sel.channel_id, until, patterns := channels) AS after) AS s
    ) AS u
    LEFT JOIN spreads AS b ON b.channel_id = sel.channel_id AND NOT b.later
    LEFT JOIN spreads AS a ON a.channel_id = sel.channel_id AND a.later
    WHERE b.mean IS NOT NULL OR a.mean IS NOT NULL
),
measured AS (
    SELECT c.*, abs(c.mean_a - c.mean_b) / greatest(c.mean_limit, 3 * c.floor) AS shift,
           ln(greatest(c.spread_a, c.floor) / greatest(c.spread_b, c.floor))
           -- Of what was constant, no chance is known.
           / CASE WHEN c.spread_b > c.floor THEN greatest(c.spread_limit, 0.05) ELSE ln(4) END AS widening
    FROM compared AS c
),
judged AS (
    SELECT m.*, CASE WHEN g.channel_id IS NOT NULL AND m.mean_b IS NULL THEN 'no samples before: gap'
                     WHEN g.channel_id IS NOT NULL AND m.mean_a IS NULL THEN 'no samples: gap'
                     WHEN m.mean_b IS NULL THEN 'appeared'
                     WHEN m.mean_a IS NULL THEN CASE WHEN m.ends < until THEN 'retired' ELSE 'fell silent' END
                     WHEN m.kind = 'discrete' AND m.spread_b < 1e-9 THEN 'new state'
                     WHEN m.shift >= abs(m.widening) THEN CASE WHEN m.mean_a > m.mean_b THEN 'higher' ELSE 'lower' END
                     WHEN m.widening > 0 THEN 'wider spread'
                     ELSE 'narrower spread' END AS change,
           CASE WHEN m.shift IS NOT NULL THEN greatest(m.shift, abs(m.widening)) END AS score
    FROM measured AS m
    LEFT JOIN (SELECT DISTINCT b.channel_id, b.later FROM breaks AS b
               WHERE b.to_time IS NULL OR b.to_time > b.begins) AS g
      ON g.channel_id = m.channel_id
     AND g.later = CASE WHEN m.mean_b IS NULL THEN false WHEN m.mean_a IS NULL THEN true END
)
SELECT j.name AS channel, j.unit, j.change, CASE WHEN j.spread_b > j.floor THEN j.score END AS score,
       j.mean_b AS mean_before, j.mean_a AS mean_after,
       j.spread_b AS spread_before, j.spread_a AS spread_after, NULL AS verdict,
       occurrence(j.change, since, since, CASE WHEN j.change LIKE '%spread' THEN j.spread_a - j.spread_b
                                               ELSE j.mean_a - j.mean_b END) AS occurrence
FROM judged AS j
-- What was constant has to leave the floor, and what is as it was has not changed, however low the score may be.
WHERE (j.score >= greatest(least_score, CASE WHEN j.spread_b > j.floor THEN 1e-9 ELSE 1 END) OR j.score IS NULL)
  AND j.verdict IS DISTINCT FROM 4
UNION ALL BY NAME
SELECT sel.name AS channel, CASE WHEN c.channel_id IS NULL THEN verdict_text(3)
                                 WHEN c.mean_b IS NULL THEN verdict_text(4)
                                 WHEN c.mean_a IS NULL THEN verdict_text(3)
                                 ELSE verdict_text(c.verdict) END AS verdict
FROM selected AS sel
LEFT JOIN compared AS c ON c.channel_id = sel.channel_id;

SELECT * EXCLUDE (verdict, occurrence)
FROM portion_rows
WHERE verdict IS NULL
ORDER BY change LIKE 'no samples%', mean_before IS NULL OR mean_after IS NULL, score DESC NULLS FIRST, channel;
