-- 2 Unit: all channels of one unit.

-- name: units
SELECT DISTINCT regexp_replace(c.name, '/[^/]*$', '') AS __text, regexp_replace(c.name, '/[^/]*$', '') AS __value
FROM plant.channel AS c
WHERE c.retired_at IS NULL
ORDER BY 1;

-- name: measures
-- The units of measure of its analog channels, each of which gets a chart; those without one are "no unit".
SELECT u.text AS __text, u.text AS __value
FROM (
    SELECT coalesce(nullif(c.unit, ''), 'no unit') AS text, min(c.id) AS first
    FROM plant.channel AS c
    WHERE c.retired_at IS NULL AND c.kind = 'analog' AND regexp_replace(c.name, '/[^/]*$', '') = ${unit:sqlstring}
    GROUP BY 1
) AS u
ORDER BY u.first
LIMIT 12;
