-- timeline: what happened around a point in time, in chronological order
--
-- Events, gaps that begin or end, changes of state and quality, changes of values that are usually constant, jumps
-- larger than the channel's steps are by chance, when a channel left its usual course without a jump ("move", as
-- first_mover has it), and counters that run backwards ("reset"). More than "busy" texts or conflicts of a channel are
-- one line; below the answer are the states that are left out. What is chance is learned from the reference. "seconds"
-- is the time after "instant": negative: earlier.
--
-- Parameters
--   since         timestamptz  from this moment on
--   until         timestamptz  before this moment
--   channels      text[]       names or patterns [NULL: all]
--   instant       timestamptz  reference of the column "seconds" [NULL: the middle]
--   busy          int          leave out states that change more often than this, including the reference [20]
--   step          interval     length of the shortest mean [NULL: a 10000th of the interval, the sampling interval]
--   reference     reference    FROM..TO, or a time before [NULL: 1 h, 300 sampling intervals, the interval up to 1 d]
--   false_alarms  interval     mean time between false jumps of all channels together [NULL: 20 times the interval]
--   habits        boolean      list also jumps and moves that came at the same time on days before [false]
-- Legal: busy 0.., step a 1000000th..interval, false_alarms 1 us..100 years
-- Reads from: reference
-- Portions: channel
-- Cost: one pass over the channels' samples from the reference to until, twice: 4 s per million samples.
-- Example: plantlog ask timeline --from 2026-03-09T10:00Z --to 2026-03-09T10:10Z --channel 'tankfarm/*'
WITH
selected AS (
    SELECT c.channel_id, c.name, c.kind, c.unit, c.source_id FROM channels_like(channels) AS c
),
-- Events and gaps of a whole source are included if one of the channels belongs to it.
matching AS (
    SELECT e.time, e.id, e.type AS what, coalesce(sel.name, s.name, '') AS channel,
           concat_ws(': ', nullif(e.text, ''), detail_text(e.detail)) AS detail,
           count(*) FILTER (WHERE e.type IN ('text', 'conflict')) OVER (PARTITION BY e.channel_id, e.type) > busy
           AND sel.channel_id IS NOT NULL AS many
    FROM event AS e
    LEFT JOIN selected AS sel ON sel.channel_id = e.channel_id
    LEFT JOIN source AS s ON s.id = e.source_id
    WHERE e.time >= since AND e.time < until AND e.type <> 'counter_reset' -- the samples tell these
      AND (sel.channel_id IS NOT NULL OR e.channel_id IS NULL)
      AND (sel.channel_id IS NOT NULL OR e.source_id IS NULL OR e.source_id IN (SELECT o.source_id FROM selected AS o))
),
events AS (
    SELECT s.time, s.id, s.what, s.channel, s.detail FROM matching AS s WHERE NOT s.many
    UNION ALL
    SELECT min(s.time), NULL, s.what, s.channel,
           format('{} until {} UTC, the first: {}, the last: {}', count(*),
                  strftime(max(s.time) AT TIME ZONE 'UTC', '%Y-%m-%d %H:%M:%S'), arg_min(s.detail, s.time),
                  arg_max(s.detail, s.time))
    FROM matching AS s
    WHERE s.many
    GROUP BY s.what, s.channel
),
-- A gap of a whole source is one line, not one for each of its channels.
gaps AS (
    SELECT t.time, g.id, t.what, coalesce(c.name, s.name) AS channel,
           concat_ws(': ', g.reason, nullif(g.detail, '')) AS detail
    FROM gap AS g
    JOIN source AS s ON s.id = g.source_id
    LEFT JOIN selected AS c ON c.channel_id = g.channel_id
    CROSS JOIN LATERAL (VALUES (g.from_time, 'gap begins'), (g.to_time, 'gap ends')) AS t (time, what)
    WHERE t.time >= since AND t.time < until AND g.to_time IS DISTINCT FROM g.from_time
      AND (c.channel_id IS NOT NULL
           OR (g.channel_id IS NULL AND g.source_id IN (SELECT o.source_id FROM selected AS o)))
),
changes AS MATERIALIZED (
    SELECT * FROM steps_of(channels, reference, since, until, greatest(busy, 3), false_alarms) AS s
),
qualities AS (
    SELECT c.channel_id, c.time, 'quality' AS what,
           quality(c.old_status) || ' → ' || quality(c.status) || ' ' || status_hex(c.status) AS detail,
           NULL AS size
    FROM changes AS c
    WHERE quality(c.status) <> quality(c.old_status)
),
value_changes AS MATERIALIZED (
    SELECT c.channel_id, c.time,
           CASE WHEN sel.kind = 'discrete' THEN 'state' WHEN c.steps <= 3 THEN 'held value' ELSE 'jump' END AS what,
           rounded_text(c.old_value) || ' → ' || rounded_text(c.value) || ' '
           || unit_at(c.channel_id, c.time, patterns := channels) AS detail, c.value - c.old_value AS size
    FROM changes AS c
    JOIN selected AS sel ON sel.channel_id = c.channel_id
    WHERE c.is_step
      -- Only the first step of a jump is listed.
      AND ((sel.kind = 'discrete' AND c.steps <= busy) OR (sel.kind = 'analog' AND (c.steps <= 3 OR c.is_jump)))
    UNION ALL
    SELECT d.channel_id, d.time, 'reset',
           rounded_text(d.old_value) || ' → ' || rounded_text(d.value) || ' '
           || unit_at(d.channel_id, d.time, patterns := channels), NULL
    FROM counter_decreases(channels, least(reference[1], since), until) AS d
),
moves AS MATERIALIZED (
    SELECT m.*, lag(m.time, 1, since) OVER (PARTITION BY m.channel_id, m.verdict ORDER BY m.time) AS since_last
    FROM moves_of(channels, reference, since, until, step, false_alarms, 0) AS m
),
-- Of a channel that has jumped by then, or since its last move, the jump says it.
moves_alone AS (
    SELECT m.channel_id, m.time, 'move' AS what,
           rounded_text(m.usual) || ' → ' || rounded_text(m.value) || ' '
           || unit_at(m.channel_id, m.time, patterns := channels) AS detail, m.value - m.usual AS size
    FROM moves AS m
    JOIN selected AS sel ON sel.channel_id = m.channel_id AND sel.kind = 'analog'
    WHERE m.verdict = 0
      AND NOT EXISTS (FROM value_changes AS v
                      WHERE v.channel_id = m.channel_id AND v.time >= m.since_last AND v.time <= m.time + 3 * step)
),
lines AS (
    SELECT e.time, e.id, e.what, e.channel, e.detail, NULL AS size FROM events AS e
    UNION ALL
    SELECT g.time, g.id, g.what, g.channel, g.detail, NULL FROM gaps AS g
    UNION ALL
    SELECT m.time, NULL, m.what, sel.name, rtrim(m.detail), m.size
    FROM (SELECT * FROM qualities UNION ALL SELECT * FROM value_changes UNION ALL SELECT * FROM moves_alone) AS m
    JOIN selected AS sel ON sel.channel_id = m.channel_id
)
SELECT l.time, extract(epoch FROM l.time - coalesce(instant, since + (until - since) / 2))::float8 AS seconds, l.what,
       l.channel, l.detail, l.id, NULL AS verdict,
       CASE WHEN l.what IN ('jump', 'move') THEN occurrence(l.what, l.time, l.time, l.size) END AS occurrence
FROM lines AS l
WHERE l.time >= since AND l.time < until
UNION ALL
-- States and counters are judged wherever they have samples.
SELECT NULL, NULL, NULL, sel.name, NULL, NULL,
       CASE WHEN sel.kind = 'discrete'
                 AND sel.channel_id IN (SELECT c.channel_id FROM changes AS c WHERE c.steps > busy)
            THEN format('not listed, states that changed more than {} times with the reference (--busy)', busy)
            ELSE verdict_text(CASE WHEN sel.kind = 'analog' OR m.verdict = 3 THEN m.verdict
                                   WHEN m.verdict > 0 THEN 1 END) END, NULL
FROM selected AS sel
LEFT JOIN (SELECT m.channel_id, m.verdict FROM moves AS m WHERE m.verdict > 0) AS m ON m.channel_id = sel.channel_id
WHERE sel.kind <> 'text';

-- What concerns a whole source is found with each of its channels.
SELECT DISTINCT ON (time, channel, what, detail, id) time, seconds, what, channel, detail
FROM portion_rows
WHERE verdict IS NULL
ORDER BY time, channel, what, detail, id;
