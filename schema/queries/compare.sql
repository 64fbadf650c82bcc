-- Read by the comparison with the simulator's ground truth.

-- name: select_channels
-- $2: the one source that counts, or NULL; first_us: time of the channel's first sample, microseconds since 1970
SELECT c.id, c.name, s.kind, (
    SELECT (extract(epoch FROM min(r.time)) * 1000000)::int8
    FROM plant.samples AS r
    WHERE r.channel_id = c.id
) AS first_us
FROM plant.channel AS c
JOIN plant.source AS s ON s.id = c.source_id
WHERE c.name = ANY ($1::text[])
  AND ($2::text IS NULL OR s.name = $2);

-- name: select_samples
-- $1 from, $2 to: microseconds since 1970; $3: the one source that counts, or NULL
SELECT s.channel_id, s.value, s.status, (extract(epoch FROM s.time) * 1000000)::int8 AS us
FROM plant.samples AS s
WHERE s.time >= to_timestamp(0) + $1 * INTERVAL '1 microsecond'
  AND s.time < to_timestamp(0) + $2 * INTERVAL '1 microsecond'
  AND ($3::text IS NULL OR s.channel_id IN (
    SELECT c.id FROM plant.channel AS c JOIN plant.source AS o ON o.id = c.source_id WHERE o.name = $3));

-- name: select_texts
SELECT c.name, e.text, e.status, (extract(epoch FROM e.time) * 1000000)::int8 AS us
FROM plant.event AS e
JOIN plant.channel AS c ON c.id = e.channel_id
WHERE e.type = 'text'
  AND e.time >= to_timestamp(0) + $1 * INTERVAL '1 microsecond'
  AND e.time < to_timestamp(0) + $2 * INTERVAL '1 microsecond'
  AND ($3::text IS NULL OR c.source_id = (SELECT s.id FROM plant.source AS s WHERE s.name = $3));

-- name: select_first_texts
SELECT c.name, (extract(epoch FROM min(e.time)) * 1000000)::int8 AS us
FROM plant.event AS e
JOIN plant.channel AS c ON c.id = e.channel_id
WHERE e.type = 'text'
GROUP BY c.name;

-- name: select_gaps
-- Gaps of each channel, including those of its source; a backfilled gap no longer counts.
SELECT c.name,
    (extract(epoch FROM g.from_time) * 1000000)::int8 AS from_us,
    (extract(epoch FROM g.to_time) * 1000000)::int8 AS to_us
FROM plant.gap AS g
JOIN plant.channel AS c ON c.source_id = g.source_id AND (g.channel_id IS NULL OR g.channel_id = c.id)
WHERE g.backfilled_at IS NULL
  AND c.name = ANY ($1::text[]);
