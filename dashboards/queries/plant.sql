-- 1 Plant overview. A unit is a channel's name without its last part; an area is its first part. No query reads samples
-- of all channels: states come from gaps, sources and alarms, and one key value is read per unit.

-- name: areas
SELECT DISTINCT split_part(c.name, '/', 1) AS __text, split_part(c.name, '/', 1) AS __value
FROM plant.channel AS c
WHERE c.retired_at IS NULL
  AND $__installationFilter(c.source_id)
UNION ALL
SELECT 'no channels yet', ''
WHERE NOT EXISTS (
    SELECT FROM plant.channel AS c
    WHERE c.retired_at IS NULL
      AND $__installationFilter(c.source_id)
)
ORDER BY 1;

-- name: channels
SELECT coalesce(sum(u.channels), 0)::bigint AS "Channels", count(*) AS "Units"
FROM (
    SELECT count(*) AS channels
    FROM plant.channel AS c
    WHERE c.retired_at IS NULL AND split_part(c.name, '/', 1) IN (${area:sqlstring})
      AND $__installationFilter(c.source_id)
    GROUP BY plant.unit_of(c.name)
) AS u;

-- name: missing_now
SELECT count(DISTINCT g.channel_id) AS "No data now"
FROM plant.gap_channel AS g
JOIN plant.channel AS c ON c.id = g.channel_id
WHERE g.to_time IS NULL AND c.retired_at IS NULL AND split_part(c.name, '/', 1) IN (${area:sqlstring})
  AND $__installationFilter(c.source_id);

-- name: units
-- A gap of a whole source counts for each unit with channels of the source, and is not expanded to these channels.
WITH
parts AS MATERIALIZED (
    SELECT plant.unit_of(c.name) AS unit, c.source_id, count(*) AS channels
    FROM plant.channel AS c
    WHERE c.retired_at IS NULL AND split_part(c.name, '/', 1) IN (${area:sqlstring})
      AND $__installationFilter(c.source_id)
    GROUP BY 1, 2
),
gaps AS MATERIALIZED (
    SELECT g.source_id, g.channel_id, g.from_time, g.to_time, g.reason
    FROM plant.gap AS g
    WHERE g.to_time IS NULL
       OR (g.to_time > g.from_time AND g.from_time < $__timeTo()::timestamptz
           AND g.to_time > $__timeFrom()::timestamptz)
),
unavailable AS (
    SELECT DISTINCT g.source_id FROM gaps AS g WHERE g.channel_id IS NULL AND g.to_time IS NULL
),
-- A union, summed by unit, because the planner cannot estimate joins of so many units. missing: channels without data,
-- each counted once, with its newest gap.
parts_and_gaps AS (
    SELECT p.unit, p.channels, 0 AS missing, NULL::timestamptz AS from_time, NULL::timestamptz AS to_time,
           NULL::text AS reason, 0 AS active, 0 AS unacknowledged, NULL::int AS rank
    FROM parts AS p
    UNION ALL
    SELECT p.unit, 0, CASE WHEN g.to_time IS NULL
                            AND row_number() OVER (PARTITION BY p.unit, p.source_id, g.to_time IS NULL
                                                   ORDER BY g.from_time DESC) = 1
                           THEN p.channels ELSE 0 END, g.from_time, g.to_time, g.reason, 0, 0, NULL
    FROM gaps AS g
    JOIN parts AS p ON p.source_id = g.source_id
    WHERE g.channel_id IS NULL
    UNION ALL
    SELECT plant.unit_of(c.name), 0,
           CASE WHEN g.to_time IS NULL AND c.source_id NOT IN (SELECT w.source_id FROM unavailable AS w)
                 AND row_number() OVER (PARTITION BY c.id, g.to_time IS NULL ORDER BY g.from_time DESC) = 1
                THEN 1 ELSE 0 END,
           g.from_time, g.to_time, g.reason, 0, 0, NULL
    FROM gaps AS g
    JOIN plant.channel AS c ON c.id = g.channel_id AND c.source_id = g.source_id
    WHERE c.retired_at IS NULL AND split_part(c.name, '/', 1) IN (${area:sqlstring})
      AND $__installationFilter(c.source_id)
    UNION ALL
    SELECT a.plant_unit, 0, 0, NULL, NULL, NULL, a.active::int, (a.state LIKE '%unacknowledged%')::int,
           CASE WHEN a.active THEN a.priority_rank END
    FROM plant.alarm_active AS a
    WHERE $__installationFilter(a.source_id)
),
beginnings AS (
    SELECT t.*, sum(t.missing) OVER (PARTITION BY t.unit, t.reason) AS for_this_reason,
           t.from_time IS NOT NULL AND t.from_time < $__timeTo()::timestamptz
           AND coalesce(t.to_time, now()) > $__timeFrom()::timestamptz
           AND plant.begins_outage(t.from_time, lag(t.from_time) OVER begun, lag(t.to_time) OVER begun)
               AS begins_outage
    FROM parts_and_gaps AS t
    WINDOW begun AS (PARTITION BY t.unit ORDER BY t.from_time, t.to_time)
),
-- Outages: gaps that begin together count once, whatever the number of channels (begins_outage).
units AS (
    SELECT t.unit, sum(t.channels)::bigint AS channels, sum(t.missing)::bigint AS missing, sum(t.active) AS active,
           sum(t.unacknowledged) AS unacknowledged, min(t.rank) AS rank,
           -- The reason why most channels have no data now, and when that began last: both of one open gap.
           (array_agg(t.reason ORDER BY t.for_this_reason DESC, t.from_time DESC)
            FILTER (WHERE t.reason IS NOT NULL AND t.to_time IS NULL))[1] AS reason,
           (array_agg(t.from_time ORDER BY t.for_this_reason DESC, t.from_time DESC)
            FILTER (WHERE t.reason IS NOT NULL AND t.to_time IS NULL))[1] AS since,
           count(*) FILTER (WHERE t.begins_outage) AS outages
    FROM beginnings AS t
    GROUP BY t.unit
    HAVING sum(t.channels) > 0
),
plants AS (
    SELECT p.unit, string_agg(DISTINCT i.plant, ', ' ORDER BY i.plant) AS names
    FROM parts AS p
    JOIN plant.source AS s ON s.id = p.source_id
    JOIN plant.installation AS i ON i.id = s.installation_id
    GROUP BY p.unit
)
SELECT u.unit AS "Unit",
       CASE WHEN u.rank <= 2 THEN 'alarm'
            WHEN u.missing >= u.channels THEN 'no data' WHEN u.missing > 0 THEN 'partly'
            WHEN u.active > 0 THEN 'warning' WHEN u.unacknowledged > 0 THEN 'unacknowledged' ELSE 'good' END AS "State",
       u.active AS "Active", u.unacknowledged AS "Unacknowledged", u.channels AS "Channels", u.missing AS "No data",
       u.outages AS "Outages",
       u.reason AS "Reason", u.since AS "Since", l.names AS "Plant"
FROM units AS u
LEFT JOIN plants AS l ON l.unit = u.unit
ORDER BY u.rank, u.missing = 0, u.unacknowledged = 0, u.unit
LIMIT 1000;

-- name: key_values
-- The first analog channel with a range in each unit, in the order of the tag list: plants list the most important
-- first. While a channel has a gap it has no value, however short the gap has been. Grafana makes room for the text of
-- most letters; the spaces at the end are room for another one whose letters are wider.
WITH key AS (
    SELECT DISTINCT ON (plant.unit_of(c.name)) c.id, c.source_id, c.name, c.unit, c.range_lo, c.range_hi
    FROM plant.channel AS c
    WHERE c.retired_at IS NULL AND c.kind = 'analog' AND c.range_hi > c.range_lo
      AND split_part(c.name, '/', 1) IN (${area:sqlstring})
      AND $__installationFilter(c.source_id)
    ORDER BY plant.unit_of(c.name), c.id
    LIMIT 60
)
SELECT k.name || '  '
           || coalesce('no data: ' || o.reason, s.text || ' ' || k.unit, 'nothing yet')
           || '   ' AS "Channel",
       CASE WHEN o.reason IS NULL AND s.is_finite
            THEN 100 * (s.value - k.range_lo) / (k.range_hi - k.range_lo) END AS "% of range"
FROM key AS k
LEFT JOIN LATERAL (
    SELECT l.value, f.is_finite,
           CASE WHEN f.is_finite THEN round(l.value::numeric, 2)::text ELSE l.value::text END AS text
    FROM plant.held_before(k.id, now() - INTERVAL '24 hours', now()) AS l
    CROSS JOIN LATERAL (SELECT abs(l.value) < 1e300 AS is_finite) AS f
    WHERE l.status >= 0
) AS s ON true
LEFT JOIN LATERAL (
    SELECT g.reason
    FROM plant.gap AS g
    WHERE g.to_time IS NULL AND g.source_id = k.source_id AND (g.channel_id IS NULL OR g.channel_id = k.id)
    ORDER BY g.from_time DESC LIMIT 1
) AS o ON true
ORDER BY k.name;

-- name: alarms_now
SELECT count(*) FILTER (WHERE a.active AND a.priority_rank <= 2) AS "Urgent",
       count(*) FILTER (WHERE a.active) AS "Active",
       count(*) FILTER (WHERE a.state LIKE '%unacknowledged%') AS "Unacknowledged"
FROM plant.alarm_active AS a
WHERE (a.channel_id IS NULL OR split_part(a.channel, '/', 1) IN (${area:sqlstring}))
  AND $__installationFilter(a.source_id);

-- name: alarms
-- Thresholds that are not in the unit of the value have theirs beside them.
SELECT a.priority AS "Priority", a.channel AS "Channel", a.plant_unit AS path, a.limit_name AS "Limit",
       a.state AS "State", a.since AS "Since", a.value AS "Value",
       CASE a.limit_name WHEN 'bad' THEN NULL WHEN 'stale' THEN a.threshold || ' s'
                         WHEN 'rate' THEN a.threshold || ' ' || a.unit || '/s' ELSE a.threshold::text
       END AS "Threshold",
       a.unit AS "Unit of measure", a.acknowledged_by AS "Acknowledged by"
FROM plant.alarm_active AS a
WHERE (a.channel_id IS NULL OR split_part(a.channel, '/', 1) IN (${area:sqlstring}))
  AND $__installationFilter(a.source_id)
ORDER BY a.priority_rank, a.since DESC
LIMIT 200;

-- name: inhibited
SELECT a.channel AS "Channel", plant.unit_of(a.channel) AS path, a.limit_name AS "Limit", a.state AS "State",
       a.shelved_until AS "Until", a.who AS "By", a.why AS "Why"
FROM plant.alarm_inhibited AS a
WHERE (a.channel_id IS NULL OR split_part(a.channel, '/', 1) IN (${area:sqlstring}))
  AND $__installationFilter(a.source_id)
ORDER BY a.channel, a.limit_name
LIMIT 200;

-- name: alarm_rate
-- Changes of alarms, from counts by minute. Every step has a value, so that bars are as wide as a step.
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
      AND $__installationFilter(c.source_id)
    GROUP BY 1, 2
)
SELECT t.bin AS time, a.area AS metric, coalesce(c.n, 0) AS value
FROM bounds AS x
CROSS JOIN LATERAL generate_series(date_bin(x.step, $__timeFrom()::timestamptz, 'epoch'),
                                   least(now(), $__timeTo()::timestamptz), x.step) AS t (bin)
CROSS JOIN (SELECT DISTINCT c.area FROM changes AS c) AS a
LEFT JOIN changes AS c ON c.bin = t.bin AND c.area = a.area
ORDER BY t.bin, a.area;
