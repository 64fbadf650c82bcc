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

-- name: select_unchanged
-- Samples of OPC UA one or two microseconds after a gap of the channel, or of a member of a redundant pair, also one that
-- was backfilled. The first one has value and status of a sample from before the gap, the second one of any before its
-- end. $2 from, $3 to: microseconds since 1970.
SELECT DISTINCT c.name, (extract(epoch FROM s.time) * 1000000)::int8 AS us
FROM (
    SELECT g.source_id, g.channel_id, g.from_time, g.to_time FROM plant.gap AS g
    UNION
    SELECT g.source_id, g.channel_id, g.from_time, g.to_time FROM plant.member_gap AS g
) AS g
JOIN plant.source AS o ON o.id = g.source_id AND o.kind = 'opcua'
JOIN plant.channel AS c ON c.source_id = g.source_id AND (g.channel_id IS NULL OR g.channel_id = c.id)
CROSS JOIN LATERAL unnest(ARRAY[g.from_time, g.to_time]) WITH ORDINALITY AS before (time, microseconds)
JOIN plant.samples AS s
    ON s.channel_id = c.id AND s.time = g.to_time + before.microseconds * INTERVAL '1 microsecond'
WHERE g.to_time > g.from_time
  AND g.to_time >= to_timestamp(0) + $2 * INTERVAL '1 microsecond' - INTERVAL '1 second'
  AND g.to_time < to_timestamp(0) + $3 * INTERVAL '1 microsecond'
  AND c.name = ANY ($1::text[])
  AND EXISTS (
    SELECT FROM plant.samples AS b
    WHERE b.channel_id = c.id AND b.time <= before.time AND (b.value, b.status) IS NOT DISTINCT FROM (s.value, s.status)
  );

-- name: select_gaps
-- Gaps of each channel, including those of its source; a backfilled gap no longer counts.
SELECT c.name,
    (extract(epoch FROM g.from_time) * 1000000)::int8 AS from_us,
    (extract(epoch FROM g.to_time) * 1000000)::int8 AS to_us
FROM plant.gap AS g
JOIN plant.channel AS c ON c.source_id = g.source_id AND (g.channel_id IS NULL OR g.channel_id = c.id)
WHERE g.backfilled_at IS NULL
  AND c.name = ANY ($1::text[]);
