-- 4 Forensics: the questions of schema/questions for one unit. They read samples, so they are limited to the last hour
-- of the time range (the one that is chosen: 12 hours) and to the selected channels. What reads the table answer is SQL
-- of DuckDB, over a question's answer.

-- name: stored
-- Whether samples of the time that the questions read were dropped, by the classes of the selected channels.
WITH
chosen AS (
    SELECT array_agg(c.channel_id) AS ids,
           greatest($__timeFrom()::timestamptz, $__timeTo()::timestamptz - INTERVAL '1 hour') AS since
    FROM plant.channels_like(ARRAY[${unit:sqlstring}, ${unit:sqlstring} || '/*']::text[]) AS c
    WHERE c.kind <> 'text'
)
SELECT CASE WHEN k.dropped = 0 THEN 'none dropped'
            ELSE w.where_they_are
                 || CASE WHEN k.dropped < cardinality(h.ids)
                         THEN format(' (%s of %s channels)', k.dropped, cardinality(h.ids))
                         ELSE '' END
                 || CASE WHEN w.where_they_are = 'archived' THEN '' ELSE ': not analysed' END END AS "Samples"
FROM chosen AS h
CROSS JOIN LATERAL (
    SELECT cardinality(h.ids) - cardinality(plant.retained_channels(h.ids, 'raw', h.since)) AS dropped
) AS k
CROSS JOIN LATERAL (
    SELECT CASE WHEN EXISTS (SELECT FROM plant.archived_day AS a
                             WHERE a.day = (h.since AT TIME ZONE 'UTC')::date AND a.dropped_at IS NOT NULL)
                THEN 'archived' ELSE 'dropped' END AS where_they_are
) AS w
WHERE h.ids IS NOT NULL;

-- name: viewer
-- As in 3 Channel. If several installations have channels of this unit, it is that of the first one.
WITH viewer AS (
    SELECT i.viewer_url AS url
    FROM plant.channel AS c
    JOIN plant.source AS s ON s.id = c.source_id
    JOIN plant.installation AS i ON i.id = s.installation_id
    WHERE c.retired_at IS NULL AND plant.unit_of(c.name) = ${unit:sqlstring}
      AND $__installationFilter(c.source_id) AND i.viewer_url IS NOT NULL
    ORDER BY c.id LIMIT 1
)
SELECT v.url AS __text, v.url AS __value FROM viewer AS v
UNION ALL
SELECT 'http://127.0.0.1:9110', 'http://127.0.0.1:9110' WHERE NOT EXISTS (SELECT FROM viewer AS v);

-- name: rows
-- Of the question that is chosen, as `ask` has them.
SELECT *
FROM answer;

-- name: timeline
SELECT t.time AS "Time", t.what AS "Type", c.name AS "Channel", unit_of(c.name) AS path,
       CASE WHEN c.name IS NULL THEN t.channel END AS "Source", t.detail AS "Detail"
FROM answer AS t
LEFT JOIN channel AS c ON c.name = t.channel
ORDER BY t.time DESC, t.what, t.channel, t.detail
LIMIT 500;

-- name: changes_in_time
-- Every step has a value, so that bars are as wide as a step. Simultaneous gaps of channels of one source count once.
WITH
bounds AS (
    SELECT to_milliseconds(greatest($__interval_ms * 8, 10000)) AS step,
           greatest($__timeFrom()::timestamptz, $__timeTo()::timestamptz - INTERVAL '1 hour') AS since
),
lines AS (
    SELECT date_bin(x.step, t.time, 'epoch'::timestamptz) AS bin, t.what,
           CASE WHEN t.what LIKE 'gap %' THEN count(DISTINCT c.source_id) ELSE count(*) END AS n
    FROM bounds AS x
    CROSS JOIN answer AS t
    LEFT JOIN (
        SELECT c.name, c.source_id FROM channel AS c
        UNION ALL
        SELECT s.name, s.id FROM source AS s
    ) AS c ON t.what LIKE 'gap %' AND c.name = t.channel
    GROUP BY 1, 2
),
bins AS (
    SELECT unnest(generate_series(date_bin(x.step, x.since, 'epoch'::timestamptz),
                                  least(now(), $__timeTo()::timestamptz), x.step)) AS bin
    FROM bounds AS x
)
SELECT t.bin AS time, w.what AS metric, coalesce(l.n, 0) AS value
FROM bins AS t
CROSS JOIN (SELECT DISTINCT l.what FROM lines AS l) AS w
LEFT JOIN lines AS l ON l.bin = t.bin AND l.what = w.what
ORDER BY t.bin, w.what;

-- name: setpoints
SELECT s.time AS "Time", s.channel AS "Channel", unit_of(s.channel) AS path,
       s.what AS "Type", s.old AS "From", s.new AS "To", s.unit AS "Unit of measure",
       extract(epoch FROM s.held_at_least) AS "Held at least"
FROM answer AS s
ORDER BY s.time DESC
LIMIT 200;

-- name: stuck
SELECT s.channel AS "Channel", unit_of(s.channel) AS path,
       s.stuck_from AS "From", s.stuck_to AS "To", s.value AS "Value", s.unit AS "Unit of measure",
       s.times_limit AS "× limit", s.at_range_limit AS "At range limit", s.moving_beside AS "Moving beside",
       s.note AS "Note"
FROM answer AS s
ORDER BY s.times_limit DESC NULLS LAST
LIMIT 100;

-- name: replayed
SELECT r.channel AS "Channel", unit_of(r.channel) AS path,
       r.copy_from AS "Copy from", r.copy_to AS "Copy to", r.original_from AS "Original from",
       r.original_to AS "Original to", r.copied AS "Samples", r.what AS "Type", r.scale AS "Scale",
       r."offset" AS "Offset"
FROM answer AS r
ORDER BY r.copy_from DESC
LIMIT 100;

-- name: coverage
SELECT g.channel AS "Channel", unit_of(g.channel) AS path,
       g.covered_percent AS "Coverage", g.samples AS "Samples", g.good AS "Good", g.gaps AS "Gaps",
       g.missing_seconds AS "Missing", g.longest_seconds AS "Longest", g.backfilled_seconds AS "Backfilled",
       g.unrecorded AS "Unrecorded silence", g.reasons AS "Reasons"
FROM answer AS g
ORDER BY g.covered_percent, g.channel
LIMIT 200;

-- name: gap_states
-- Gaps by channel: the number is the reason, 0 means no gap, -1 that the channel was not configured yet. Of overlapping
-- gaps, the one with the highest number is shown.
WITH
selected AS (
    SELECT c.channel_id, c.quantity, least(k.configured_at, h.first_time) AS configured_at
    FROM plant.channels_like(ARRAY[${unit:sqlstring}, ${unit:sqlstring} || '/*']::text[]) AS c
    JOIN plant.channel AS k ON k.id = c.channel_id
    -- Imported history is older than its channel.
    CROSS JOIN LATERAL (
        SELECT min(r.first_time) AS first_time
        FROM plant.rollup_1h AS r
        WHERE r.channel_id = c.channel_id AND r.bucket >= date_trunc('hour', $__timeFrom()::timestamptz)
          AND r.bucket < k.configured_at
    ) AS h
),
missing AS (
    SELECT k.quantity, k.why, lower(r.range) AS since, coalesce(upper(r.range), 'infinity') AS until
    FROM (
        SELECT w.quantity, n.why,
               range_agg(tstzrange(greatest(g.from_time, $__timeFrom()::timestamptz), g.to_time)) AS ranges
        FROM selected AS w
        CROSS JOIN LATERAL plant.chart_gaps(w.channel_id, $__timeFrom(), least(now(), $__timeTo()::timestamptz)) AS g
        CROSS JOIN LATERAL (
            SELECT CASE WHEN g.backfilled THEN 1
                        WHEN g.reason IN ('stopped', 'killed') THEN 2
                        WHEN g.reason IN ('disconnected', 'subscription_lost', 'not_available') THEN 3
                        WHEN g.reason IN ('poll_failed', 'poll_missed', 'overflow', 'undecodable', 'refused', 'removed',
                                          'time_stands_still') THEN 4
                        WHEN g.reason = 'stale' THEN 5
                        WHEN g.reason IN ('spool_full', 'spool_corrupt', 'database_restored') THEN 6 ELSE 7 END AS why
        ) AS n
        GROUP BY w.quantity, n.why
    ) AS k
    CROSS JOIN LATERAL unnest(k.ranges) AS r (range)
    UNION ALL
    SELECT w.quantity, -1, $__timeFrom()::timestamptz, min(w.configured_at)
    FROM selected AS w
    GROUP BY w.quantity
    HAVING min(w.configured_at) > $__timeFrom()::timestamptz
),
moments AS (
    SELECT w.quantity, $__timeFrom()::timestamptz AS time FROM selected AS w
    UNION
    SELECT m.quantity, m.since FROM missing AS m
    UNION
    SELECT m.quantity, m.until FROM missing AS m WHERE m.until < least(now(), $__timeTo()::timestamptz)
)
SELECT t.time, t.quantity AS metric, coalesce(max(m.why), 0) AS value
FROM moments AS t
LEFT JOIN missing AS m ON m.quantity = t.quantity AND m.since <= t.time AND t.time < m.until
GROUP BY t.time, t.quantity
UNION ALL
-- A row without a value, because Grafana takes a timeline without rows for an error.
SELECT $__timeFrom()::timestamptz, 'no channels', NULL
WHERE NOT EXISTS (SELECT FROM moments AS t)
ORDER BY time, metric;

-- name: changed
SELECT w.channel AS "Channel", unit_of(w.channel) AS path,
       w.change AS "Change", w.score AS "Score", w.mean_before AS "Mean before",
       w.mean_after AS "Mean now", w.spread_before AS "Spread before", w.spread_after AS "Spread now",
       w.unit AS "Unit of measure"
FROM answer AS w
ORDER BY w.mean_before IS NULL OR w.mean_after IS NULL, w.score DESC NULLS FIRST
LIMIT 60;
