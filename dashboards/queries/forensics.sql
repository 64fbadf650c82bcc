-- 4 Forensics: the questions of schema/forensics for one unit. They read samples, so of a longer time the last hour is
-- looked at, and only the channels that are chosen.

-- name: patterns
SELECT u.unit AS __text, u.unit || '/*' AS __value
FROM (SELECT DISTINCT regexp_replace(c.name, '/[^/]*$', '') AS unit FROM plant.channel AS c WHERE c.retired_at IS NULL) AS u
ORDER BY 1;

-- name: timeline
SELECT t.time AS "Time", t.what AS "What", t.channel AS "Channel", regexp_replace(t.channel, '/[^/]*$', '') AS path,
       t.detail AS "Detail"
FROM plant.timeline(greatest($__timeFrom()::timestamptz, $__timeTo()::timestamptz - INTERVAL '1 hour'),
                    $__timeTo()::timestamptz, ARRAY[${channels:sqlstring}]::text[]) AS t
ORDER BY t.time DESC
LIMIT 500;

-- name: changes_in_time
SELECT date_bin(make_interval(secs => greatest($__interval_ms * 8 / 1000.0, 10)), t.time, 'epoch') AS time,
       t.what AS metric, count(*) AS value
FROM plant.timeline(greatest($__timeFrom()::timestamptz, $__timeTo()::timestamptz - INTERVAL '1 hour'),
                    $__timeTo()::timestamptz, ARRAY[${channels:sqlstring}]::text[]) AS t
GROUP BY 1, 2
ORDER BY 1, 2;

-- name: setpoints
SELECT s.time AS "Time", s.channel AS "Channel", regexp_replace(s.channel, '/[^/]*$', '') AS path,
       s.what AS "What", s.old AS "From", s.new AS "To", s.unit AS "In",
       extract(epoch FROM s.held_before) AS "Held before"
FROM plant.setpoint_changes(greatest($__timeFrom()::timestamptz, $__timeTo()::timestamptz - INTERVAL '1 hour'),
                            $__timeTo()::timestamptz, ARRAY[${channels:sqlstring}]::text[]) AS s
ORDER BY s.time DESC
LIMIT 200;

-- name: stuck
SELECT s.channel AS "Channel", regexp_replace(s.channel, '/[^/]*$', '') AS path,
       s.stuck_from AS "From", s.stuck_to AS "To", s.value AS "Value", s.unit AS "In",
       s.times_usual AS "Times the usual", s.at_range_limit AS "At a limit", s.moving_beside AS "Moving beside it"
FROM plant.stuck_sensors(greatest($__timeFrom()::timestamptz, $__timeTo()::timestamptz - INTERVAL '1 hour'),
                         $__timeTo()::timestamptz, ARRAY[${channels:sqlstring}]::text[]) AS s
ORDER BY s.times_usual DESC NULLS LAST
LIMIT 100;

-- name: replayed
SELECT r.channel AS "Channel", regexp_replace(r.channel, '/[^/]*$', '') AS path,
       r.copy_from AS "Copy from", r.copy_to AS "Copy to", r.original_from AS "Original from",
       r.original_to AS "Original to", r.copied AS "Samples", r.what AS "What", r.scale AS "Scale", r."offset" AS "Offset"
FROM plant.replayed_signals(greatest($__timeFrom()::timestamptz, $__timeTo()::timestamptz - INTERVAL '1 hour'),
                            $__timeTo()::timestamptz, ARRAY[${channels:sqlstring}]::text[]) AS r
ORDER BY r.copy_from DESC
LIMIT 100;

-- name: coverage
SELECT g.channel AS "Channel", regexp_replace(g.channel, '/[^/]*$', '') AS path,
       g.covered_percent AS "Covered", g.samples AS "Samples", g.good AS "Good", g.gaps AS "Gaps",
       g.missing_seconds AS "Missing", g.longest_seconds AS "Longest", g.backfilled_seconds AS "Backfilled",
       g.unrecorded AS "Unrecorded silences", g.reasons AS "Reasons"
FROM plant.gaps_and_coverage(greatest($__timeFrom()::timestamptz, $__timeTo()::timestamptz - INTERVAL '1 hour'),
                             $__timeTo()::timestamptz, ARRAY[${channels:sqlstring}]::text[], true) AS g
ORDER BY g.covered_percent, g.channel
LIMIT 200;

-- name: gap_states
-- Where something is missing, by channel: the number says why, and 0 that it is there.
WITH
missing AS (
    SELECT c.quantity, greatest(g.from_time, $__timeFrom()::timestamptz) AS since,
           least(coalesce(g.to_time, now()), $__timeTo()::timestamptz) AS until,
           CASE WHEN g.backfilled_at IS NOT NULL THEN 1
                WHEN g.reason IN ('stopped', 'killed') THEN 2
                WHEN g.reason IN ('disconnected', 'subscription_lost', 'not_available') THEN 3
                WHEN g.reason IN ('poll_failed', 'poll_missed', 'overflow', 'undecodable', 'refused') THEN 4
                WHEN g.reason = 'stale' THEN 5 ELSE 6 END AS why
    FROM plant.channels_like(ARRAY[${channels:sqlstring}]::text[]) AS c
    LEFT JOIN plant.gap_channel AS g
        ON g.channel_id = c.channel_id AND g.from_time < $__timeTo()::timestamptz
       AND coalesce(g.to_time, now()) > $__timeFrom()::timestamptz
)
SELECT m.time, m.metric, max(m.value) AS value
FROM (
    SELECT $__timeFrom()::timestamptz AS time, m.quantity AS metric, 0 AS value FROM missing AS m
    UNION ALL
    SELECT m.since, m.quantity, m.why FROM missing AS m WHERE m.since IS NOT NULL
    UNION ALL
    SELECT m.until, m.quantity, 0 FROM missing AS m
    WHERE m.until IS NOT NULL AND m.until < least(now(), $__timeTo()::timestamptz)
) AS m
GROUP BY m.time, m.metric
ORDER BY m.time, m.metric;

-- name: changed
SELECT w.channel AS "Channel", regexp_replace(w.channel, '/[^/]*$', '') AS path,
       w.change AS "Change", w.score AS "Score", w.mean_before AS "Mean before",
       w.mean_after AS "Mean now", w.spread_before AS "Spread before", w.spread_after AS "Spread now", w.unit AS "In"
FROM plant.what_changed(greatest($__timeFrom()::timestamptz, $__timeTo()::timestamptz - INTERVAL '1 hour'),
                        $__timeTo()::timestamptz, ARRAY[${channels:sqlstring}]::text[]) AS w
ORDER BY w.score DESC
LIMIT 60;
