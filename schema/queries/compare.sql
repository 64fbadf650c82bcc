-- What the comparison with the simulator's ground truth reads.

-- name: channels
SELECT c.id, c.name, s.kind
FROM plant.channel AS c
JOIN plant.source AS s ON s.id = c.source_id
WHERE c.name = ANY ($1::text[]);

-- name: samples
-- $1 from, $2 to: microseconds since 1970
SELECT s.channel_id, s.value, s.status, (extract(epoch FROM s.time) * 1000000)::int8 AS us
FROM plant.samples AS s
WHERE s.time >= to_timestamp(0) + $1 * INTERVAL '1 microsecond'
  AND s.time < to_timestamp(0) + $2 * INTERVAL '1 microsecond';

-- name: texts
SELECT c.name, e.text, (extract(epoch FROM e.time) * 1000000)::int8 AS us
FROM plant.event AS e
JOIN plant.channel AS c ON c.id = e.channel_id
WHERE e.type = 'text'
  AND e.time >= to_timestamp(0) + $1 * INTERVAL '1 microsecond'
  AND e.time < to_timestamp(0) + $2 * INTERVAL '1 microsecond';
