-- 5 Storage: from storage(), which reads only the catalog; no table is scanned.

-- name: size
SELECT pg_database_size(current_database()) AS "Database",
       (SELECT s.value::float8 FROM plant.setting AS s WHERE s.key = 'disk_budget') AS "Budget";

-- name: days_left
-- From the last run of the job storage: days until the disk or the budget is full at the recent growth; at most ten
-- years. Of several installations, the one whose settings apply: no other one may see the disk.
SELECT CASE WHEN r.detail LIKE '%disk lasts for years%' THEN 3650
            ELSE replace(substring(r.detail FROM 'disk lasts ([0-9,]+) day'), ',', '')::float8 END AS "Days left"
FROM plant.job_run AS r
WHERE r.job = 'storage' AND r.outcome = 'ok'
  AND coalesce(r.installation_id = (SELECT s.installation_id FROM plant.setting AS s
                                    WHERE s.installation_id IS NOT NULL LIMIT 1),
               true)
ORDER BY r.started_at DESC
LIMIT 1;

-- name: per_sample
SELECT sum(s.bytes) / nullif(sum(s.rows), 0) AS "As rows",
       (SELECT sum(p.bytes) / nullif(sum(p.rows), 0) FROM plant.storage() AS p
        WHERE p.form IN ('packed', 'columnstore') AND p.relation LIKE 'samples%') AS "Compressed"
FROM plant.storage() AS s
WHERE s.relation = 'samples_raw' AND s.form = 'rows' AND s.rows > 0;

-- name: edition
SELECT initcap(e.value) || ', ' || t.value AS "TimescaleDB",
       coalesce((SELECT c.value FROM plant.setting AS c WHERE c.key = 'compression'),
                CASE e.value WHEN 'community' THEN 'columnstore' ELSE 'packed' END) AS "Closed hours"
FROM plant.setting AS e
JOIN plant.setting AS t ON t.key = 'timescaledb_version'
WHERE e.key = 'edition';

-- name: by_relation
SELECT s.relation || CASE s.form WHEN 'rows' THEN '' ELSE ' (' || s.form || ')' END AS "Relation",
       sum(s.bytes) AS "Bytes"
FROM plant.storage() AS s
GROUP BY s.relation, s.form
HAVING sum(s.bytes) > 0
ORDER BY 2 DESC
LIMIT 16;

-- name: by_day
-- Samples by day and form. Every day has a value, so that bars are as wide as a day. A day that begins before the time
-- range and ends after it is shown at the beginning of that: else there is nothing to be seen.
WITH
days AS (
    SELECT s.day, s.form, sum(s.bytes) AS bytes
    FROM plant.storage() AS s
    WHERE s.relation IN ('samples_raw', 'samples_packed')
      AND s.day >= date_trunc('day', $__timeFrom()::timestamptz, 'UTC') AND s.day <= $__timeTo()
    GROUP BY s.day, s.form
)
SELECT CASE WHEN count(*) OVER (PARTITION BY f.form) = 1 THEN greatest(t.day, $__timeFrom()::timestamptz)
            ELSE t.day END AS time,
       f.form AS metric, coalesce(d.bytes, 0) AS value
FROM generate_series(date_trunc('day', $__timeFrom()::timestamptz, 'UTC'), $__timeTo()::timestamptz,
                     INTERVAL '24 hours')
     AS t (day)
CROSS JOIN (SELECT DISTINCT d.form FROM days AS d) AS f
LEFT JOIN days AS d ON d.day = t.day AND d.form = f.form
ORDER BY 1, 2;

-- name: rows_by_day
WITH
days AS (
    SELECT s.day, s.form, sum(s.rows) AS rows
    FROM plant.storage() AS s
    WHERE s.relation IN ('samples_raw', 'samples_packed')
      AND s.day >= date_trunc('day', $__timeFrom()::timestamptz, 'UTC') AND s.day <= $__timeTo()
    GROUP BY s.day, s.form
)
SELECT CASE WHEN count(*) OVER (PARTITION BY f.form) = 1 THEN greatest(t.day, $__timeFrom()::timestamptz)
            ELSE t.day END AS time,
       f.form AS metric, coalesce(d.rows, 0) AS value
FROM generate_series(date_trunc('day', $__timeFrom()::timestamptz, 'UTC'), $__timeTo()::timestamptz,
                     INTERVAL '24 hours')
     AS t (day)
CROSS JOIN (SELECT DISTINCT d.form FROM days AS d) AS f
LEFT JOIN days AS d ON d.day = t.day AND d.form = f.form
ORDER BY 1, 2;

-- name: database_by_time
SELECT r.started_at AS time, r.bytes AS "Database"
FROM plant.job_run AS r
WHERE r.job = 'storage' AND r.bytes > 0 AND $__timeFilter(r.started_at)
ORDER BY r.started_at;

-- name: relations
SELECT s.relation AS "Relation", s.form AS "Form", count(*) AS "Parts", min(s.day) AS "From",
       sum(s.rows) AS "Rows (est.)", sum(s.bytes) AS "Bytes", sum(s.bytes) / nullif(sum(s.rows), 0) AS "Bytes per row"
FROM plant.storage() AS s
GROUP BY s.relation, s.form
ORDER BY sum(s.bytes) DESC;

-- name: retention
-- Of another installation than the first, the plant is in the place of the prefix.
SELECT CASE WHEN i.class_prefix > '' THEN i.plant || ': ' || substr(r.name, 1 + length(i.class_prefix))
            ELSE r.name END AS "Class",
       (SELECT count(*) FROM plant.channel_class AS k JOIN plant.channel AS c ON c.id = k.channel_id
        WHERE k.class = r.name AND c.retired_at IS NULL) AS "Channels",
       extract(epoch FROM r.raw)::float8 AS "Samples", extract(epoch FROM r.minute)::float8 AS "Minutes",
       extract(epoch FROM r.hour)::float8 AS "Hours", extract(epoch FROM r.event)::float8 AS "Events"
FROM plant.retention_class AS r
LEFT JOIN plant.installation AS i ON i.id = r.installation_id
WHERE coalesce(r.installation_id::text IN (${installation:sqlstring}), true)
ORDER BY r.name = 'default' DESC, r.name;

-- name: seals
SELECT to_char(s.day, 'YYYY-MM-DD') AS "Day", s.revision AS "Revision", s.sealed_at AS "Sealed at",
       s.samples AS "Samples", s.channels AS "Channels", s.events AS "Events", s.gaps AS "Gaps",
       CASE s.installation WHEN 0 THEN 'all' ELSE i.plant END AS "Plant"
FROM plant.day_seal AS s
LEFT JOIN plant.installation AS i ON i.number = s.installation
WHERE s.day >= ($__timeFrom()::timestamptz AT TIME ZONE 'UTC')::date
  AND s.day <= ($__timeTo()::timestamptz AT TIME ZONE 'UTC')::date
  AND coalesce(i.id::text IN (${installation:sqlstring}), true)
ORDER BY s.sealed_at DESC
LIMIT 200;
