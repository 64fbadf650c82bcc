-- 1 Plant overview. A unit is a channel's name without its last part; an area is its first part. Nothing here reads
-- samples of all channels: states come from gaps, sources and alarms, and one key value is read of each unit.

-- name: areas
SELECT DISTINCT split_part(c.name, '/', 1) AS __text, split_part(c.name, '/', 1) AS __value
FROM plant.channel AS c
WHERE c.retired_at IS NULL
UNION ALL
SELECT 'no channels yet', 'no channels yet' WHERE NOT EXISTS (SELECT FROM plant.channel AS c WHERE c.retired_at IS NULL)
ORDER BY 1;

-- name: channels
SELECT count(*) AS "Channels", count(DISTINCT regexp_replace(c.name, '/[^/]*$', '')) AS "Units"
FROM plant.channel AS c
WHERE c.retired_at IS NULL AND split_part(c.name, '/', 1) IN (${area:sqlstring});

-- name: missing_now
SELECT count(DISTINCT g.channel_id) AS "Without data now"
FROM plant.gap_channel AS g
JOIN plant.channel AS c ON c.id = g.channel_id
WHERE g.to_time IS NULL AND c.retired_at IS NULL AND split_part(c.name, '/', 1) IN (${area:sqlstring});

-- name: units
WITH
channels AS MATERIALIZED (
    SELECT c.id, regexp_replace(c.name, '/[^/]*$', '') AS unit
    FROM plant.channel AS c
    WHERE c.retired_at IS NULL AND split_part(c.name, '/', 1) IN (${area:sqlstring})
),
missing AS (
    SELECT c.unit, count(DISTINCT c.id) AS channels, min(g.reason) AS reason, min(g.from_time) AS since
    FROM plant.gap_channel AS g
    JOIN channels AS c ON c.id = g.channel_id
    WHERE g.to_time IS NULL
    GROUP BY c.unit
),
-- Outages: stretches of time in which something of the unit was missing, however many of its channels.
lost AS (
    SELECT m.unit, (SELECT count(*) FROM unnest(m.missing)) AS outages
    FROM (
        SELECT c.unit, range_agg(tstzrange(g.from_time, g.to_time)) AS missing
        FROM plant.gap_channel AS g
        JOIN channels AS c ON c.id = g.channel_id
        WHERE g.from_time < $__timeTo()::timestamptz AND coalesce(g.to_time, now()) > $__timeFrom()::timestamptz
        GROUP BY c.unit
    ) AS m
),
alarms AS (
    SELECT a.plant_unit AS unit, count(*) AS n, min(a.priority_rank) FILTER (WHERE a.active) AS rank
    FROM plant.alarm_active AS a
    GROUP BY a.plant_unit
)
SELECT u.unit AS "Unit",
       CASE WHEN a.rank <= 2 THEN 'alarm'
            WHEN m.channels >= u.channels THEN 'no data' WHEN m.channels > 0 THEN 'partly'
            WHEN a.n > 0 THEN 'warning' ELSE 'good' END AS "State",
       coalesce(a.n, 0) AS "Alarms", u.channels AS "Channels", coalesce(m.channels, 0) AS "Without data",
       coalesce(l.outages, 0) AS "Outages",
       m.reason AS "Reason", m.since AS "Since"
FROM (SELECT c.unit, count(*) AS channels FROM channels AS c GROUP BY c.unit) AS u
LEFT JOIN missing AS m ON m.unit = u.unit
LEFT JOIN lost AS l ON l.unit = u.unit
LEFT JOIN alarms AS a ON a.unit = u.unit
ORDER BY a.rank, coalesce(m.channels, 0) = 0, u.unit
LIMIT 1000;

-- name: key_values
-- The first analog channel with a range of each unit, as its tag list has it: plants name the most important first.
WITH key AS (
    SELECT DISTINCT ON (regexp_replace(c.name, '/[^/]*$', '')) c.id, c.name, c.unit, c.range_lo, c.range_hi
    FROM plant.channel AS c
    WHERE c.retired_at IS NULL AND c.kind = 'analog' AND c.range_hi > c.range_lo
      AND split_part(c.name, '/', 1) IN (${area:sqlstring})
    ORDER BY regexp_replace(c.name, '/[^/]*$', ''), c.id
    LIMIT 60
)
SELECT k.name || '  ' || round(s.value::numeric, 2) || ' ' || k.unit AS "Channel",
       100 * (s.value - k.range_lo) / (k.range_hi - k.range_lo) AS "Of its range"
FROM key AS k
CROSS JOIN LATERAL (
    SELECT r.value
    FROM plant.samples_raw AS r
    WHERE r.channel_id = k.id AND r.time > now() - INTERVAL '15 min' AND r.status >= 0 AND r.value <> 'NaN'
    ORDER BY r.time DESC LIMIT 1
) AS s
ORDER BY k.name;

-- name: alarms_now
SELECT count(*) FILTER (WHERE a.active AND a.priority_rank <= 2) AS "Urgent", count(*) FILTER (WHERE a.active) AS "Active",
       count(*) FILTER (WHERE a.state LIKE '%unacknowledged%') AS "Not acknowledged"
FROM plant.alarm_active AS a
WHERE split_part(a.channel, '/', 1) IN (${area:sqlstring});

-- name: alarms
SELECT a.priority AS "Priority", a.channel AS "Channel", a.plant_unit AS path, a.limit_name AS "Limit", a.state AS "State",
       a.since AS "Since", a.value AS "Value", a.threshold AS "At", a.unit AS "In", a.acknowledged_by AS "Acknowledged by"
FROM plant.alarm_active AS a
WHERE split_part(a.channel, '/', 1) IN (${area:sqlstring})
ORDER BY a.priority_rank, a.since DESC
LIMIT 200;

-- name: inhibited
SELECT a.channel AS "Channel", plant.unit_of(a.channel) AS path, a.limit_name AS "Limit", a.state AS "State",
       a.shelved_until AS "Until", a.who AS "By", a.why AS "Why"
FROM plant.alarm_inhibited AS a
WHERE split_part(a.channel, '/', 1) IN (${area:sqlstring})
ORDER BY a.channel, a.limit_name
LIMIT 200;

-- name: alarm_rate
-- Changes of alarms, from counts by the minute. Every step has a value, so that bars are as wide as their step.
WITH
bounds AS (
    SELECT make_interval(secs => greatest(60, ceil($__interval_ms * 8 / 60000.0) * 60)) AS step
),
changes AS (
    SELECT date_bin(x.step, e.bucket, 'epoch') AS bin, split_part(c.name, '/', 1) AS area, sum(e.n) AS n
    FROM bounds AS x
    CROSS JOIN plant.event_count_1m AS e
    JOIN plant.channel AS c ON c.id = e.channel_id
    WHERE e.type = 'alarm' AND $__timeFilter(e.bucket) AND split_part(c.name, '/', 1) IN (${area:sqlstring})
    GROUP BY 1, 2
)
SELECT t.bin AS time, a.area AS metric, coalesce(c.n, 0) AS value
FROM bounds AS x
CROSS JOIN LATERAL generate_series(date_bin(x.step, $__timeFrom()::timestamptz, 'epoch'),
                                   least(now(), $__timeTo()::timestamptz), x.step) AS t (bin)
CROSS JOIN (SELECT DISTINCT c.area FROM changes AS c) AS a
LEFT JOIN changes AS c ON c.bin = t.bin AND c.area = a.area
ORDER BY t.bin, a.area;
