-- 2 Unit: all channels of one unit. Curves come from series() through chart_steps(), which leaves out missing steps.
-- For a unit with many channels, the first ones are shown.

-- name: units
SELECT DISTINCT plant.unit_of(c.name) AS __text, plant.unit_of(c.name) AS __value
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

-- name: measures
-- Units of measure of the analog channels, in the order of the tag list: each gets a chart, and each power of ten of
-- the ranges one of its own, since small values are a flat line beside large ones. The last row is for a unit without
-- analog channels, because a panel cannot be repeated for no value.
WITH scaled AS (
    SELECT c.id, coalesce(nullif(c.unit, ''), 'no unit') AS measure,
           plant.scale_power(c.range_lo, c.range_hi) AS power
    FROM plant.channel AS c
    WHERE c.retired_at IS NULL AND c.kind = 'analog' AND plant.unit_of(c.name) = ${unit:sqlstring}
      AND $__installationFilter(c.source_id)
),
charts AS (
    SELECT s.measure, s.power, min(s.id) AS first, count(*) OVER (PARTITION BY s.measure) AS scales
    FROM scaled AS s
    GROUP BY s.measure, s.power
)
SELECT t.measure || CASE WHEN t.scales = 1 THEN '' WHEN t.power IS NULL THEN ', no range'
                         ELSE ', up to ' || trim_scale(10::numeric ^ t.power) END AS __text,
       concat_ws(' ', t.measure, t.power) AS __value
FROM (
    SELECT c.measure, c.power, c.scales, c.first FROM charts AS c
    UNION ALL
    SELECT 'no analog channels', NULL, 1, NULL WHERE NOT EXISTS (SELECT FROM charts)
) AS t
ORDER BY t.first
LIMIT 12;

-- name: summary
SELECT count(*) AS "Channels",
       count(*) FILTER (WHERE EXISTS (
           SELECT FROM plant.gap AS g
           WHERE g.to_time IS NULL AND g.source_id = c.source_id AND (g.channel_id IS NULL OR g.channel_id = c.id)
       )) AS "No data now"
FROM plant.channel AS c
WHERE c.retired_at IS NULL AND plant.unit_of(c.name) = ${unit:sqlstring}
  AND $__installationFilter(c.source_id);

-- name: gaps
-- Outages: gaps that begin together count once, whatever the number of channels (begins_outage).
WITH
gaps AS (
    SELECT g.channel_id, g.from_time, g.to_time
    FROM plant.gap_channel AS g
    JOIN plant.channel AS c ON c.id = g.channel_id
    WHERE c.retired_at IS NULL AND plant.unit_of(c.name) = ${unit:sqlstring}
      AND $__installationFilter(c.source_id)
      AND g.backfilled_at IS NULL AND g.from_time < least(now(), $__timeTo()::timestamptz)
      AND coalesce(g.to_time, now()) > $__timeFrom()::timestamptz
),
beginnings AS (
    SELECT plant.begins_outage(g.from_time, lag(g.from_time) OVER begun, lag(g.to_time) OVER begun) AS begins_outage
    FROM gaps AS g
    WINDOW begun AS (ORDER BY g.from_time, g.to_time)
),
missing AS (
    SELECT range_agg(tstzrange(g.from_time, g.to_time)
                     * tstzrange($__timeFrom()::timestamptz, least(now(), $__timeTo()::timestamptz))) AS ranges
    FROM gaps AS g
    GROUP BY g.channel_id
)
SELECT (SELECT count(*) FROM beginnings AS b WHERE b.begins_outage) AS "Outages",
       (SELECT coalesce(sum(extract(epoch FROM upper(r.range) - lower(r.range))), 0)
        FROM missing AS m CROSS JOIN LATERAL unnest(m.ranges) AS r (range)) AS "Missing, summed";

-- name: curves
-- The first 12 channels with this unit of measure and power of ten. Each line goes through the lowest and the highest
-- value of each step, so that no peak is lost: in this order while the mean rises. Without a value there are no rows,
-- as in 3 Channel.
WITH points AS MATERIALIZED (
    SELECT c.id, c.name, d.time, d.low, d.high, d.mean < lag(d.mean) OVER (PARTITION BY c.id ORDER BY d.time) AS falls
    FROM (
        SELECT c.id, c.name
        FROM plant.channel AS c
        WHERE c.retired_at IS NULL AND c.kind = 'analog' AND plant.unit_of(c.name) = ${unit:sqlstring}
          AND $__installationFilter(c.source_id)
          AND concat_ws(' ', coalesce(nullif(c.unit, ''), 'no unit'), plant.scale_power(c.range_lo, c.range_hi))
              IN (${measure:sqlstring})
        ORDER BY c.id LIMIT 12
    ) AS c
    CROSS JOIN LATERAL plant.chart_steps(c.id, $__timeFrom(), $__timeTo(),
                                         least(800, plant.points_of($__timeFrom(), $__timeTo(), $__interval_ms))) AS d
)
SELECT s.time + p.later AS time, regexp_replace(s.name, '^.*/', '') AS metric, p.value
FROM points AS s
CROSS JOIN LATERAL (
    SELECT INTERVAL '0' AS later, CASE WHEN s.falls THEN s.high ELSE s.low END AS value
    UNION ALL
    SELECT $__interval_ms * INTERVAL '0.5 milliseconds', CASE WHEN s.falls THEN s.low ELSE s.high END
) AS p
WHERE EXISTS (SELECT FROM points AS k WHERE k.low IS NOT NULL)
ORDER BY 1, s.id;

-- name: states
-- The first 16 discrete channels: the highest state of each step; -1 for a missing step. Nothing is missing before a
-- channel was configured.
SELECT d.time, regexp_replace(c.name, '^.*/', '') AS metric, coalesce(round(d.high), -1) AS value
FROM (
    SELECT c.id, c.name, c.configured_at
    FROM plant.channel AS c
    WHERE c.retired_at IS NULL AND c.kind = 'discrete' AND plant.unit_of(c.name) = ${unit:sqlstring}
      AND $__installationFilter(c.source_id)
    ORDER BY c.id LIMIT 16
) AS c
CROSS JOIN LATERAL plant.chart_steps(c.id, $__timeFrom(), $__timeTo(),
                                     plant.points_of($__timeFrom(), $__timeTo(), $__interval_ms * 2)) AS d
WHERE d.high IS NOT NULL OR d.time >= coalesce(c.configured_at, '-infinity')
UNION ALL
-- A row without a value, because Grafana takes a timeline without rows for an error.
SELECT $__timeFrom()::timestamptz, 'no discrete channels', NULL
WHERE NOT EXISTS (
    SELECT FROM plant.channel AS c
    WHERE c.retired_at IS NULL AND c.kind = 'discrete' AND plant.unit_of(c.name) = ${unit:sqlstring}
      AND $__installationFilter(c.source_id)
)
ORDER BY time, metric;

-- name: channels
-- The newest value of each of the first 200 channels, by one index lookup each: samples at most 24 hours back.
SELECT regexp_replace(c.name, '^.*/', '') AS "Channel", c.name, ${unit:sqlstring} AS path,
       CASE WHEN c.kind = 'text' THEN t.text
            ELSE round(s.value::numeric, 3)::float8::text END AS "Value",
       plant.unit_at(c.id, coalesce(s.time, t.time, now())) AS "Unit of measure",
       CASE WHEN c.kind = 'analog' AND c.range_hi > c.range_lo AND abs(s.value) < 1e300
            THEN 100 * (s.value - c.range_lo) / (c.range_hi - c.range_lo) END AS "% of range",
       CASE WHEN o.reason IS NOT NULL THEN o.reason WHEN s.time IS NULL AND t.time IS NULL THEN 'nothing yet'
            ELSE coalesce(plant.quality(s.status), 'good') END AS "Quality",
       c.description AS "Description", coalesce(s.time, t.time) AS "Since", c.kind AS "Kind"
FROM (
    SELECT c.id, c.source_id, c.name, c.kind, c.unit, c.range_lo, c.range_hi, c.description
    FROM plant.channel AS c
    WHERE c.retired_at IS NULL AND plant.unit_of(c.name) = ${unit:sqlstring}
      AND $__installationFilter(c.source_id)
    ORDER BY c.id LIMIT 200
) AS c
LEFT JOIN LATERAL plant.held_before(c.id, least(now(), $__timeTo()::timestamptz) - INTERVAL '24 hours',
                                    least(now(), $__timeTo()::timestamptz)) AS s ON c.kind <> 'text'
LEFT JOIN LATERAL (
    SELECT e.time, e.text
    FROM plant.event AS e
    WHERE e.channel_id = c.id AND e.type = 'text' AND e.time < $__timeTo()::timestamptz
      AND e.time >= $__timeTo()::timestamptz - INTERVAL '30 days'
    ORDER BY e.time DESC LIMIT 1
) AS t ON c.kind = 'text'
LEFT JOIN LATERAL (
    SELECT g.reason
    FROM plant.gap AS g
    WHERE g.to_time IS NULL AND g.source_id = c.source_id AND (g.channel_id IS NULL OR g.channel_id = c.id)
    ORDER BY g.from_time DESC LIMIT 1
) AS o ON true
ORDER BY c.id;

-- name: events
SELECT e.time AS "Time", regexp_replace(c.name, '^.*/', '') AS "Channel", c.name, ${unit:sqlstring} AS path,
       e.type AS "Type", e.text AS "Text", plant.detail_text(e.detail) AS "Detail"
FROM plant.channel AS c
CROSS JOIN LATERAL (
    SELECT e.time, e.type, e.text, e.detail
    FROM plant.event AS e
    WHERE e.channel_id = c.id AND $__timeFilter(e.time)
    ORDER BY e.time DESC LIMIT 50
) AS e
WHERE c.retired_at IS NULL AND plant.unit_of(c.name) = ${unit:sqlstring}
  AND $__installationFilter(c.source_id)
ORDER BY e.time DESC
LIMIT 100;

-- name: gap_bands
-- The gaps at which the curves break (chart_gaps): a band for each, whatever the number of channels. series: the curves
-- that have it, one in a line; the viewer shades only the charts that have one of them.
WITH drawn AS (
    SELECT c.id, c.source_id, c.metric
    FROM (
        SELECT c.id, c.source_id, regexp_replace(c.name, '^.*/', '') AS metric,
               row_number() OVER (PARTITION BY c.unit, plant.scale_power(c.range_lo, c.range_hi) ORDER BY c.id) AS n
        FROM plant.channel AS c
        WHERE c.retired_at IS NULL AND c.kind = 'analog' AND plant.unit_of(c.name) = ${unit:sqlstring}
          AND $__installationFilter(c.source_id)
    ) AS c
    WHERE c.n <= 12
)
SELECT greatest(g.from_time, $__timeFrom()::timestamptz) AS time,
       least(coalesce(g.to_time, now()), $__timeTo()::timestamptz) AS "timeEnd",
       CASE WHEN EXISTS (SELECT FROM plant.gap AS w
                         WHERE w.source_id = g.source_id AND w.channel_id IS NULL AND w.from_time = g.from_time)
            THEN s.name
            ELSE array_to_string(g.metrics[:3], ', ')
                 || CASE WHEN g.n > 3 THEN ' and ' || g.n - 3 || ' more' ELSE '' END END
       || ': ' || g.reason || coalesce(' – ' || nullif(g.detail, ''), '') AS text,
       array_to_string(g.metrics, E'\n') AS series, 'gap' AS tags
FROM (
    SELECT d.source_id, g.from_time, g.to_time, g.reason, g.detail, array_agg(d.metric ORDER BY d.id) AS metrics,
           count(*) AS n
    FROM drawn AS d
    CROSS JOIN LATERAL plant.chart_gaps(d.id, $__timeFrom(), least(now(), $__timeTo()::timestamptz)) AS g
    WHERE NOT g.backfilled
    GROUP BY d.source_id, g.from_time, g.to_time, g.reason, g.detail
) AS g
JOIN plant.source AS s ON s.id = g.source_id
ORDER BY g.from_time DESC
LIMIT 500;

-- name: alarms
SELECT count(*) FILTER (WHERE a.active) AS "Active alarms",
       count(*) FILTER (WHERE a.state LIKE '%unacknowledged%') AS "Unacknowledged"
FROM plant.alarm_active AS a
WHERE a.plant_unit = ${unit:sqlstring}
  AND $__installationFilter(a.source_id);

-- name: clocks
SELECT m.time, m.text, 'clock' AS tags
FROM plant.clock_marks($__timeFrom()::timestamptz, $__timeTo()::timestamptz,
                       ARRAY(SELECT c.source_id FROM plant.channel AS c
                             WHERE c.retired_at IS NULL AND plant.unit_of(c.name) = ${unit:sqlstring}
                               AND $__installationFilter(c.source_id))) AS m
ORDER BY m.time DESC;
