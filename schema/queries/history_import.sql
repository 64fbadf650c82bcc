-- `plantlog source import-history`, as the owner.

-- name: select_channels
-- The channels that have or had the names $1 text[], and the class of retention that says how long their samples are
-- kept. First those of each name that had it (then) at some time from $2 to $3 timestamptz[], the last one first; then
-- the one that has it, and those that had it last. One channel at a time has a name: a version that is valid from
-- -infinity, as its channel was new, does not have it at times when another one had it.
SELECT n.name, c.id, c.name AS now, c.kind, c.source_id, s.name AS source, s.installation_id, k.class, v.until,
       coalesce(v.since <= n.last AND v.until > n.first, false) AS "then"
FROM unnest($1::text[], $2::timestamptz[], $3::timestamptz[]) AS n (name, first, last)
JOIN (
    SELECT b.name, b.channel_id, b.valid_to AS until,
           CASE WHEN b.valid_from IS NOT NULL THEN greatest(b.valid_from, lag(b.valid_to) OVER former) END AS since
    FROM plant.channel_version AS b
    WHERE b.name = ANY ($1::text[])
    WINDOW former AS (PARTITION BY b.name ORDER BY b.valid_to, b.valid_from)
) AS v ON v.name = n.name
JOIN plant.channel AS c ON c.id = v.channel_id
JOIN plant.source AS s ON s.id = c.source_id
JOIN plant.channel_class AS k ON k.channel_id = c.id
ORDER BY n.name, "then" DESC, c.name = n.name DESC, v.until DESC;

-- name: select_kept
-- Since when each class of retention keeps samples; NULL: all of them.
SELECT k.name AS class,
       greatest(date_trunc('day', plant.closed_until() - k.raw, 'UTC'),
                (SELECT d.until FROM plant.dropped AS d WHERE d.what = 'raw' AND d.retention = k.name)) AS since
FROM plant.retention_class AS k;

-- name: select_amendable
-- The archived days of installation $1, if it still archives: what comes to them is added to the archive.
SELECT a.day
FROM plant.archived_day AS a
JOIN plant.installation AS i ON i.number = a.installation
WHERE i.id = $1 AND i.archive_from IS NOT NULL;

-- name: select_default_class
-- The class default of installation $1.
SELECT concat((SELECT i.class_prefix FROM plant.installation AS i WHERE i.id = $1), 'default');

-- name: select_source
SELECT s.id, s.kind, s.installation_id FROM plant.source AS s WHERE s.name = $1;

-- name: insert_source
-- The source $1 of installation $2, for channels that no source of the configuration has. It counts as retired, at this
-- time: no samples are expected after what is imported. A source of the configuration stays as it is.
INSERT INTO plant.source AS s (name, kind, address, installation_id, retired_at)
VALUES ($1, 'push', 'import', $2, now())
ON CONFLICT (name) DO UPDATE SET retired_at = now() WHERE s.retired_at IS NOT NULL;

-- name: select_deleted
-- When samples between $1 and $2 were last deleted; what was imported before may be missing since.
SELECT max(e.time)::text
FROM plant.event AS e
WHERE e.type = 'deleted' AND (e.detail ->> 'from')::timestamptz <= $2::timestamptz
  AND (e.detail ->> 'to')::timestamptz >= $1::timestamptz;

-- name: select_packed
-- Of the channels $1 int[] and hours $2 timestamptz[], all from $3 to $4, those that are packed: their indices from 0,
-- and the columns of select_samples in evidence.sql.
SELECT (h.ordinal - 1)::int AS index, packed.*
FROM unnest($1::int[], $2::timestamptz[]) WITH ORDINALITY AS h (channel_id, hour, ordinal)
CROSS JOIN LATERAL (
    SELECT p.channel_id, p.n, p.start, p.step, p.unit, p.base, p.divisor, p.single, p.status,
           ARRAY[array_send(p.t0), array_send(p.t1), array_send(p.t2), array_send(p.t3)] AS t,
           ARRAY[array_send(p.v0), array_send(p.v1), array_send(p.v2), array_send(p.v3)] AS v,
           array_send(p.float4s) AS float4s, array_send(p.float8s) AS float8s, array_send(p.statuses) AS statuses
    FROM plant.samples_packed AS p
    WHERE p.channel_id = h.channel_id AND p.hour = h.hour AND p.hour >= $3 AND p.hour <= $4
    LIMIT 1
) AS packed
ORDER BY h.ordinal;

-- name: select_imports
-- Imports since $1 with samples of $2 <= time < $3.
SELECT DISTINCT e.detail ->> 'file' AS file
FROM plant.event AS e
WHERE e.type = 'import' AND e.time >= $1::timestamptz AND (e.detail ->> 'first')::timestamptz < $3::timestamptz
  AND (e.detail ->> 'last')::timestamptz >= $2::timestamptz
ORDER BY file;

-- name: select_packable
-- Of which of the channels $1 int[] and hours $2 timestamptz[], all of the day from $3 to $4, nothing is stored: their
-- indices from 0. LATERAL and LIMIT keep it to index look-ups within the day.
SELECT (h.ordinal - 1)::int AS index
FROM unnest($1::int[], $2::timestamptz[]) WITH ORDINALITY AS h (channel_id, hour, ordinal)
LEFT JOIN LATERAL (SELECT true AS found FROM plant.samples_packed AS p
                   WHERE p.channel_id = h.channel_id AND p.hour = h.hour AND p.hour >= $3 AND p.hour < $4
                   LIMIT 1) AS packed ON true
LEFT JOIN LATERAL (SELECT true AS found FROM plant.samples_raw AS r
                   WHERE r.channel_id = h.channel_id AND r.time >= h.hour
                     AND r.time < plant.add_interval(h.hour, INTERVAL '1 hour') AND r.time >= $3 AND r.time < $4
                   LIMIT 1) AS rows ON true
WHERE packed.found IS NULL AND rows.found IS NULL;
