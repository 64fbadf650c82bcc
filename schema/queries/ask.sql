-- What `plantlog ask` has to know before DuckDB answers a question.

-- name: set_installation
-- plant.channels_like returns only channels of installation $1 (NULL: all).
SELECT set_config('plant.installation', coalesce($1::uuid::text, ''), false);

-- name: select_unmatched_patterns
-- The patterns among $1 that match no channel.
WITH matching AS MATERIALIZED (
    SELECT c.name FROM plant.channels_like($1::text[]) AS c
)
SELECT p.pattern
FROM unnest($1::text[]) AS p (pattern)
WHERE p.pattern NOT IN (SELECT m.name FROM matching AS m)
  AND NOT (p.pattern LIKE '%*%' AND EXISTS (SELECT FROM plant.channels_like(ARRAY[p.pattern])));

-- name: is_valid
-- Whether the text $1 is a value of the type $2. To cast it would log an error of the server where it is none.
SELECT pg_input_is_valid($1::text, $2::text);

-- name: select_lost_days
-- Days between $1 and $2 of which retention dropped samples of the channels $3 (patterns; NULL: all)
-- that are not archived.
SELECT DISTINCT d.day
FROM plant.event AS e
CROSS JOIN LATERAL (
    SELECT (e.detail ->> 'from')::timestamptz AS from_time, (e.detail ->> 'to')::timestamptz AS to_time,
           ((e.detail ->> 'from')::timestamptz AT TIME ZONE 'UTC')::date AS day
) AS d
WHERE e.type = 'retention' AND e.detail ->> 'what' = 'raw' AND e.detail ->> 'action' IN ('chunk', 'rows')
  AND d.from_time < $2::timestamptz AND d.to_time > $1::timestamptz
  AND coalesce((e.detail ->> 'channel_ids')::int4multirange
               && (SELECT range_agg(int4range(c.channel_id, c.channel_id, '[]'))
                   FROM plant.channels_like($3::text[]) AS c), true)
  AND NOT EXISTS (SELECT FROM plant.archived_day AS a WHERE a.day = d.day AND a.dropped_at IS NOT NULL)
ORDER BY d.day;

-- name: select_archived_days
-- Archived days with samples between $1 and $2, and how many.
SELECT a.day, sum(a.samples)::bigint AS samples
FROM plant.archived_day AS a
JOIN plant.installation AS i ON i.number = a.installation
WHERE a.day >= ($1::timestamptz AT TIME ZONE 'UTC')::date AND a.day < $2::timestamptz AT TIME ZONE 'UTC'
  AND a.samples > 0
  AND coalesce(i.id = (SELECT nullif(current_setting('plant.installation', true), '')::uuid), true)
GROUP BY a.day
ORDER BY a.day;

-- name: select_portions
-- Name and unit of the plant of the channels $1 (patterns; NULL: all).
SELECT c.name, c.unit_path FROM plant.channels_like($1::text[]) AS c ORDER BY c.name;

-- name: select_packed_rate
-- Samples a second of a channel, in the packed hours $1; NULL: there are none.
SELECT max(h.rate)::float8 AS rate
FROM (SELECT avg(p.n) / 3600 AS rate
      FROM plant.samples_packed AS p
      WHERE p.hour = ANY ($1::timestamptz[])
      GROUP BY p.hour) AS h;

-- name: count_channels
SELECT count(*) FROM plant.channels_like(NULL);
