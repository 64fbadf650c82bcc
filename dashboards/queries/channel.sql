-- 3 Channel: details of one channel. Curves come from series() through chart_steps(), which leaves out missing steps. A
-- text channel has no curve: its texts are events.

-- name: channels
SELECT u.text AS __text, u.value AS __value
FROM (
    SELECT regexp_replace(c.name, '^.*/', '') AS text, c.name AS value, c.id
    FROM plant.channel AS c
    WHERE c.retired_at IS NULL AND plant.unit_of(c.name) = ${unit:sqlstring}
      AND $__installationFilter(c.source_id)
    UNION ALL
    SELECT 'no channels', '', NULL
    WHERE NOT EXISTS (SELECT FROM plant.channel AS c
                      WHERE c.retired_at IS NULL AND plant.unit_of(c.name) = ${unit:sqlstring}
                        AND $__installationFilter(c.source_id))
) AS u
ORDER BY u.id;

-- name: viewer
-- Where a browser finds the viewer of the installation whose channel this is: it reads that one's archive.
WITH viewer AS (
    SELECT i.viewer_url AS url
    FROM plant.channel AS c
    JOIN plant.source AS s ON s.id = c.source_id
    JOIN plant.installation AS i ON i.id = s.installation_id
    WHERE c.name = ${channel:sqlstring} AND i.viewer_url IS NOT NULL
)
SELECT v.url AS __text, v.url AS __value FROM viewer AS v
UNION ALL
SELECT 'http://127.0.0.1:9110', 'http://127.0.0.1:9110' WHERE NOT EXISTS (SELECT FROM viewer AS v);

-- name: unit
-- The unit of measure as a suffix: otherwise Grafana reads m, h, d and s as units of time. It is the unit at the end of
-- the time range; annotations mark changes.
SELECT coalesce('suffix:' || nullif(plant.unit_at(c.id, $__timeTo()), ''), 'none') AS unit
FROM plant.channel AS c
WHERE c.name = ${channel:sqlstring};

-- name: now
-- As text, since the channel may be a text channel; with its position in the range, if there is one. In an outage there
-- is no latest value, but a last one: a source that can't be read has left one Bad sample behind it.
SELECT CASE WHEN c.kind = 'text' THEN t.text
            WHEN o.reason IS NULL THEN v.text
            ELSE coalesce(v.text || ', ' || v.ago || ' ago', 'none') END AS "Latest",
       CASE WHEN o.reason IS NOT NULL THEN 'no data: ' || o.reason
            WHEN c.range_hi > c.range_lo AND abs(s.value) < 1e300
            THEN round((100 * (s.value - c.range_lo) / (c.range_hi - c.range_lo))::numeric) || ' % of ' || c.range_lo
                 || ' to ' || c.range_hi END AS "% of range"
FROM plant.channel AS c
CROSS JOIN LATERAL (SELECT least(now(), $__timeTo()::timestamptz) AS time) AS x
LEFT JOIN LATERAL plant.held_before(c.id, x.time - INTERVAL '24 hours', x.time) AS s ON c.kind <> 'text'
LEFT JOIN LATERAL plant.held_before(c.id, s.time - INTERVAL '24 hours', s.time) AS b ON s.status < 0 AND b.status >= 0
LEFT JOIN LATERAL (
    SELECT g.reason
    FROM plant.chart_gaps(c.id, x.time - INTERVAL '1 microsecond', x.time) AS g
    WHERE NOT g.backfilled
    UNION ALL
    SELECT plant.quality(s.status) WHERE s.status < 0
    LIMIT 1
) AS o ON true
CROSS JOIN LATERAL (
    SELECT coalesce(b.time, s.time) AS time, CASE WHEN s.status >= 0 THEN s.value ELSE b.value END AS value
) AS l
LEFT JOIN LATERAL (
    SELECT concat_ws(' ', CASE WHEN abs(l.value) >= 0.01 AND abs(l.value) < 1e15 THEN round(l.value::numeric, 3)::float8
                               ELSE l.value END::text, nullif(plant.unit_at(c.id, l.time), '')) AS text,
           CASE WHEN a.seconds < 120 THEN round(a.seconds) || ' s'
                WHEN a.seconds < 7200 THEN round(a.seconds / 60) || ' min'
                ELSE round(a.seconds / 3600) || ' h' END AS ago
    FROM (SELECT extract(epoch FROM x.time - l.time) AS seconds WHERE l.value IS NOT NULL) AS a
) AS v ON true
LEFT JOIN LATERAL (
    SELECT e.text
    FROM plant.event AS e
    WHERE e.channel_id = c.id AND e.type = 'text' AND e.time < x.time AND e.time >= x.time - INTERVAL '30 days'
    ORDER BY e.time DESC LIMIT 1
) AS t ON c.kind = 'text'
WHERE c.name = ${channel:sqlstring};

-- name: figures
SELECT min(d.low) AS "Minimum",
       plant.rollup_mean(sum(plant.rollup_weight(d.mean) * greatest(d.n_good, 1)),
                         sum(greatest(d.n_good, 1)) FILTER (WHERE d.mean IS NOT NULL),
                         min(d.low), max(d.high)) AS "Mean",
       max(d.high) AS "Maximum"
FROM plant.channel AS c
CROSS JOIN LATERAL plant.chart_steps(c.id, $__timeFrom(), $__timeTo(),
                                     plant.points_of($__timeFrom(), $__timeTo(), $__interval_ms * 4)) AS d
WHERE c.name = ${channel:sqlstring};

-- name: counted
SELECT sum(d.n) AS "Samples", 100.0 * sum(d.n_good) / nullif(sum(d.n), 0) AS "Good"
FROM plant.channel AS c
CROSS JOIN LATERAL (
    SELECT d.n, d.n_good
    FROM plant.chart_steps(c.id, $__timeFrom(), $__timeTo(),
                           plant.points_of($__timeFrom(), $__timeTo(), $__interval_ms * 4)) AS d
    WHERE c.kind <> 'text'
    UNION ALL
    SELECT count(*), count(*) FILTER (WHERE coalesce(e.status, 0) >= 0)
    FROM plant.event AS e
    WHERE c.kind = 'text' AND e.channel_id = c.id AND e.type = 'text' AND $__timeFilter(e.time)
) AS d
WHERE c.name = ${channel:sqlstring};

-- name: in_gaps
-- Of the time in which the channel was configured, or had samples, the share in recorded gaps that were not
-- backfilled. Nobody records gaps of pushed channels.
WITH
spans AS (
    SELECT c.id,
           greatest($__timeFrom()::timestamptz,
                    least(c.configured_at, plant.first_sample(c.id, $__timeFrom(), $__timeTo()))) AS since,
           least($__timeTo()::timestamptz, now(), c.retired_at, s.retired_at) AS until
    FROM plant.channel AS c
    JOIN plant.source AS s ON s.id = c.source_id
    WHERE c.name = ${channel:sqlstring} AND s.kind <> 'push'
),
missing AS (
    SELECT x.since, x.until,
           range_agg(tstzrange(x.since, x.until) * tstzrange(g.from_time, g.to_time))
               FILTER (WHERE g.from_time IS NOT NULL) AS ranges
    FROM spans AS x
    LEFT JOIN LATERAL plant.chart_gaps(x.id, x.since, x.until) AS g ON NOT g.backfilled
    WHERE x.since < x.until
    GROUP BY x.since, x.until
)
SELECT 100 * coalesce(
           (SELECT sum(extract(epoch FROM upper(r.range) - lower(r.range))) FROM unnest(m.ranges) AS r (range)), 0)
       / extract(epoch FROM m.until - m.since) AS "In gaps"
FROM missing AS m;

-- name: curve
-- Without a value there are no rows: Grafana would draw axes with nothing in between.
WITH points AS MATERIALIZED (
    SELECT d.time, d.low, d.high, d.mean
    FROM plant.channel AS c
    CROSS JOIN LATERAL plant.chart_steps(c.id, $__timeFrom(), $__timeTo(),
                                         plant.points_of($__timeFrom(), $__timeTo(), $__interval_ms)) AS d
    WHERE c.name = ${channel:sqlstring} AND c.kind <> 'text'
)
SELECT p.time, p.low AS "lowest", p.high AS "highest", p.mean AS "mean"
FROM points AS p
WHERE EXISTS (SELECT FROM points AS k WHERE k.low IS NOT NULL)
ORDER BY p.time;

-- name: earlier
-- An earlier time range of the same length, shifted onto the selected one; of a counter the rate, as in now_beside.
-- Without a value in it there are no rows, as in curve.
WITH points AS MATERIALIZED (
    SELECT v.time + x.shift AS time, v.value
    FROM plant.channel AS c
    CROSS JOIN (SELECT INTERVAL '1 second' * (${compare:sqlstring})::int AS shift) AS x
    CROSS JOIN LATERAL plant.chart_values(c.id, $__timeFrom()::timestamptz - x.shift,
                                          $__timeTo()::timestamptz - x.shift,
                                          plant.points_of($__timeFrom(), $__timeTo(), $__interval_ms)) AS v
    WHERE c.name = ${channel:sqlstring}
)
SELECT p.time, p.value AS "earlier"
FROM points AS p
WHERE EXISTS (SELECT FROM points AS k WHERE k.value IS NOT NULL)
ORDER BY p.time;

-- name: now_beside
WITH points AS MATERIALIZED (
    SELECT v.time, v.value
    FROM plant.channel AS c
    CROSS JOIN LATERAL plant.chart_values(c.id, $__timeFrom(), $__timeTo(),
                                          plant.points_of($__timeFrom(), $__timeTo(), $__interval_ms)) AS v
    WHERE c.name = ${channel:sqlstring}
)
SELECT p.time, p.value AS "this time"
FROM points AS p
WHERE EXISTS (SELECT FROM points AS k WHERE k.value IS NOT NULL)
ORDER BY p.time;

-- name: compared_unit
-- That of unit; of a counter, whose rate is compared, a second.
SELECT coalesce('suffix:' || nullif(u.unit || CASE WHEN c.kind = 'counter' THEN '/s' ELSE '' END, ''), 'none') AS unit
FROM plant.channel AS c
CROSS JOIN LATERAL (SELECT coalesce(plant.unit_at(c.id, $__timeTo()), '') AS unit) AS u
WHERE c.name = ${channel:sqlstring};

-- name: distribution
-- 40 classes from the lowest to the highest value; one if all are equal. Of a time range of up to a day, every sample
-- counts; of a longer one, or where nothing but a held value is known, the means of steps.
WITH
samples AS MATERIALIZED (
    SELECT s.value AS mean, 1::bigint AS weight
    FROM plant.channel AS c
    CROSS JOIN LATERAL (
        SELECT b.value, b.status FROM plant.samples_between(ARRAY[c.id], $__timeFrom(), $__timeTo()) AS b
        UNION ALL
        SELECT a.value, a.status FROM plant.archived_samples(c.id, $__timeFrom(), $__timeTo()) AS a
    ) AS s
    WHERE c.name = ${channel:sqlstring} AND s.status >= 0 AND abs(s.value) < 1e300
      AND $__timeTo()::timestamptz - $__timeFrom()::timestamptz <= INTERVAL '1 day'
      AND (plant.retained_channels(ARRAY[c.id], 'raw', $__timeFrom()) <> '{}'
           OR plant.archived_ranges(c.id) && tstzrange($__timeFrom(), $__timeTo()))
),
points AS MATERIALIZED (
    SELECT s.mean, s.weight FROM samples AS s
    UNION ALL
    SELECT d.mean, greatest(d.n_good, 1)
    FROM plant.channel AS c
    CROSS JOIN LATERAL plant.chart_steps(c.id, $__timeFrom(), $__timeTo(),
                                         plant.points_of($__timeFrom(), $__timeTo(), $__interval_ms)) AS d
    WHERE c.name = ${channel:sqlstring} AND d.mean IS NOT NULL AND abs(d.mean) < 1e300
      AND NOT EXISTS (SELECT FROM samples)
),
ends AS (
    SELECT min(p.mean) AS low, max(p.mean) AS high, sum(p.weight) AS weight FROM points AS p
),
classes AS (
    SELECT CASE WHEN e.high > e.low THEN least(39, floor(40 * (p.mean - e.low) / (e.high - e.low)))::int ELSE 0 END
               AS class,
           sum(p.weight) AS weight
    FROM points AS p
    CROSS JOIN ends AS e
    GROUP BY 1
)
SELECT round((e.low + (e.high - e.low) * (n.n + 0.5) / 40)::numeric,
             CASE WHEN e.high > e.low THEN least(12, greatest(0, 2 - floor(log(e.high - e.low))))::int
                  ELSE 3 END)::text AS "Value",
       coalesce(100.0 * k.weight / e.weight, 0) AS "Share"
FROM ends AS e
CROSS JOIN generate_series(0, CASE WHEN e.high > e.low THEN 39 ELSE 0 END) AS n (n)
LEFT JOIN classes AS k ON k.class = n.n
WHERE e.weight > 0
ORDER BY n.n;

-- name: quality
-- For each step: good samples, only others, a held value without samples, missing, or not configured yet. For a text
-- channel: the text that held.
WITH states AS MATERIALIZED (
    SELECT d.time, 'Quality' AS metric,
           CASE WHEN d.n > 0 AND d.n_good = d.n THEN 'good' WHEN d.n_good > 0 THEN 'partly good' WHEN d.n > 0 THEN 'bad'
                WHEN d.mean IS NOT NULL THEN 'held' WHEN d.time < c.configured_at THEN 'not configured yet'
                ELSE 'missing' END AS value
    FROM plant.channel AS c
    CROSS JOIN LATERAL plant.chart_steps(c.id, $__timeFrom(), $__timeTo(),
                                         plant.points_of($__timeFrom(), $__timeTo(), $__interval_ms * 2)) AS d
    WHERE c.name = ${channel:sqlstring} AND c.kind <> 'text'
    UNION ALL
    SELECT greatest(e.time, $__timeFrom()::timestamptz), 'Text', e.text
    FROM plant.channel AS c
    CROSS JOIN LATERAL (
        (SELECT b.time, b.text
         FROM plant.event AS b
         WHERE b.channel_id = c.id AND b.type = 'text' AND b.time < $__timeFrom()::timestamptz
           AND b.time >= $__timeFrom()::timestamptz - INTERVAL '30 days'
         ORDER BY b.time DESC LIMIT 1)
        UNION ALL
        (SELECT b.time, b.text
         FROM plant.event AS b
         WHERE b.channel_id = c.id AND b.type = 'text' AND $__timeFilter(b.time)
         ORDER BY b.time DESC LIMIT 2000)
    ) AS e
    WHERE c.name = ${channel:sqlstring} AND c.kind = 'text'
)
SELECT s.time, s.metric, s.value FROM states AS s
UNION ALL
-- A row without a value, because Grafana takes a timeline without rows for an error.
SELECT $__timeFrom()::timestamptz, 'no value yet', NULL
WHERE NOT EXISTS (SELECT FROM states AS s)
ORDER BY 1;

-- name: facts
SELECT c.description AS "Description", c.address AS "Address", s.name AS "Source", c.kind AS "Kind",
       c.unit AS "Unit of measure", c.range_lo AS "Range low", c.range_hi AS "Range high",
       i.seconds AS "Expected interval"
FROM plant.channel AS c
JOIN plant.source AS s ON s.id = c.source_id
LEFT JOIN plant.channel_interval AS i ON i.channel_id = c.id
WHERE c.name = ${channel:sqlstring};

-- name: gaps
SELECT g.from_time AS "From", g.to_time AS "To",
       extract(epoch FROM coalesce(g.to_time, now()) - g.from_time) AS "Duration",
       g.reason AS "Reason",
       CASE WHEN g.to_time IS NULL THEN 'open' WHEN g.backfilled_at IS NOT NULL THEN 'backfilled'
            ELSE 'closed' END AS "State",
       g.detail AS "Detail"
FROM plant.gap_channel AS g
JOIN plant.channel AS c ON c.id = g.channel_id
WHERE c.name = ${channel:sqlstring} AND g.from_time < $__timeTo()::timestamptz
  AND coalesce(g.to_time, now()) > $__timeFrom()::timestamptz
ORDER BY g.from_time DESC
LIMIT 200;

-- name: events
SELECT e.time AS "Time", e.type AS "Type", e.text AS "Text", plant.detail_text(e.detail) AS "Detail"
FROM plant.event AS e
JOIN plant.channel AS c ON c.id = e.channel_id
WHERE c.name = ${channel:sqlstring} AND $__timeFilter(e.time)
ORDER BY e.time DESC
LIMIT 200;

-- name: changes
-- Changes of the channel's definition: unit, address, scale, limits.
SELECT e.time, e.text, 'change' AS tags
FROM plant.channel AS c
JOIN plant.event AS e ON e.channel_id = c.id
WHERE c.name = ${channel:sqlstring} AND e.type = 'channel_changed' AND $__timeFilter(e.time)
ORDER BY e.time DESC
LIMIT 100;

-- name: gap_bands
SELECT greatest(g.from_time, $__timeFrom()::timestamptz) AS time,
       least(coalesce(g.to_time, now()), $__timeTo()::timestamptz) AS "timeEnd",
       g.reason || coalesce(' – ' || nullif(g.detail, ''), '') AS text, 'gap' AS tags
FROM plant.channel AS c
CROSS JOIN LATERAL plant.chart_gaps(c.id, $__timeFrom(), least(now(), $__timeTo()::timestamptz)) AS g
WHERE c.name = ${channel:sqlstring} AND NOT g.backfilled
ORDER BY g.from_time DESC
LIMIT 500;

-- name: alarms
-- The channel's limits and the conditions of its server, and the state of each alarm. As on 1 Plant, thresholds that
-- are not in the channel's unit have theirs beside them.
WITH listed AS (
    SELECT l.limit_name, l.threshold, coalesce(a.state, 'normal') AS state, l.priority, a.since, a.value,
           a.acknowledged_by, c.unit
    FROM plant.channel AS c
    JOIN plant.alarm_limit AS l ON l.channel_id = c.id
    LEFT JOIN plant.alarm AS a ON a.channel_id = l.channel_id AND a.limit_name = l.limit_name
    WHERE c.name = ${channel:sqlstring}
    UNION ALL
    SELECT k.condition_name, NULL, k.state, k.priority, k.since, NULL, k.acknowledged_by, c.unit
    FROM plant.channel AS c
    JOIN plant.condition_now AS k ON k.channel_id = c.id
    WHERE c.name = ${channel:sqlstring}
)
SELECT l.limit_name AS "Limit",
       CASE l.limit_name WHEN 'bad' THEN NULL WHEN 'stale' THEN l.threshold || ' s'
                         WHEN 'rate' THEN l.threshold || ' ' || l.unit || '/s' ELSE l.threshold::text
       END AS "Threshold", l.state AS "State", l.priority AS "Priority",
       l.since AS "Since", l.value AS "Value", l.acknowledged_by AS "Acknowledged by"
FROM listed AS l
ORDER BY plant.priority_rank(l.priority), l.limit_name;

-- name: clocks
SELECT m.time, m.text, 'clock' AS tags
FROM plant.clock_marks($__timeFrom()::timestamptz, $__timeTo()::timestamptz,
                       ARRAY(SELECT c.source_id FROM plant.channel AS c WHERE c.name = ${channel:sqlstring})) AS m
ORDER BY m.time DESC;

-- name: limits
-- The limits of the channel's values, from end to end of the chart, if there is a value beside them.
SELECT t.time, 'limit ' || l.limit_name AS metric, l.threshold AS value
FROM plant.channel AS c
JOIN plant.alarm_limit AS l ON l.channel_id = c.id
CROSS JOIN (VALUES ($__timeFrom()::timestamptz), ($__timeTo()::timestamptz)) AS t (time)
WHERE c.name = ${channel:sqlstring} AND c.kind <> 'text' AND l.limit_name IN ('lolo', 'lo', 'hi', 'hihi')
  AND EXISTS (SELECT FROM plant.chart_steps(c.id, $__timeFrom(), $__timeTo(),
                                            plant.points_of($__timeFrom(), $__timeTo(), $__interval_ms)) AS d
              WHERE d.low IS NOT NULL)
ORDER BY t.time, l.limit_name;
