-- Read by the comparison with the simulator's ground truth.

-- name: select_channels
-- $1: the one source that counts, or NULL; first_us: time of the channel's first sample, microseconds since 1970
SELECT c.id, c.name, s.kind, (
    SELECT (extract(epoch FROM min(r.time)) * 1000000)::int8
    FROM plant.samples AS r
    WHERE r.channel_id = c.id
) AS first_us
FROM plant.channel AS c
JOIN plant.source AS s ON s.id = c.source_id
WHERE $1::text IS NULL OR s.name = $1;

-- name: select_late_sources
-- Sources of the channels $2 (names) of which nothing is stored that is dated later than $1 (microseconds since 1970),
-- unless they are disconnected: then a gap is open. By channel it would wait for values that do not change. What was
-- written before does not count: a plant's clock may have been ahead.
SELECT s.name
FROM plant.source AS s
WHERE s.id IN (SELECT c.source_id FROM plant.channel AS c WHERE c.retired_at IS NULL AND c.name = ANY ($2::text[]))
  AND NOT EXISTS (
    SELECT FROM plant.ingest_batch AS b
    WHERE b.source_id = s.id
      AND b.written_at > to_timestamp(0) + $1::int8 * INTERVAL '1 microsecond'
      AND b.last_time > to_timestamp(0) + $1::int8 * INTERVAL '1 microsecond'
  )
  AND NOT EXISTS (
    SELECT FROM plant.gap AS g WHERE g.source_id = s.id AND g.channel_id IS NULL AND g.to_time IS NULL
  )
ORDER BY s.name;

-- name: select_samples
-- $1 from, $2 to: microseconds since 1970; $3: numbers of channels
SELECT s.channel_id, s.value, s.status, (extract(epoch FROM s.time) * 1000000)::int8 AS us
FROM plant.samples AS s
WHERE s.time >= to_timestamp(0) + $1 * INTERVAL '1 microsecond'
  AND s.time < to_timestamp(0) + $2 * INTERVAL '1 microsecond'
  AND s.channel_id = ANY ($3::int4[]);

-- name: select_texts
-- $1 from, $2 to: microseconds since 1970; $3: numbers of channels
SELECT c.name, e.text, e.status, (extract(epoch FROM e.time) * 1000000)::int8 AS us
FROM plant.event AS e
JOIN plant.channel AS c ON c.id = e.channel_id
WHERE e.type = 'text'
  AND e.time >= to_timestamp(0) + $1 * INTERVAL '1 microsecond'
  AND e.time < to_timestamp(0) + $2 * INTERVAL '1 microsecond'
  AND c.id = ANY ($3::int4[]);

-- name: select_first_texts
-- $1: numbers of channels
SELECT c.name, (extract(epoch FROM min(e.time)) * 1000000)::int8 AS us
FROM plant.event AS e
JOIN plant.channel AS c ON c.id = e.channel_id
WHERE e.type = 'text'
  AND c.id = ANY ($1::int4[])
GROUP BY c.name;

-- name: select_unchanged
-- Which of the samples $1 (numbers of channels), $2 (microseconds since 1970), $3 (values), $4 (statuses) are one or
-- two microseconds after a gap of an OPC UA channel, or of a member of a redundant pair, also one that was backfilled,
-- with value and status of a sample from before its end: of one within it where the gap is joined with one before.
SELECT a.number
FROM unnest($1::int4[], $2::int8[], $3::float8[], $4::int4[]) WITH ORDINALITY
    AS a (channel_id, us, value, status, number)
JOIN plant.channel AS c ON c.id = a.channel_id
JOIN plant.source AS o ON o.id = c.source_id AND o.kind = 'opcua'
CROSS JOIN LATERAL (SELECT to_timestamp(0) + a.us * INTERVAL '1 microsecond' AS time) AS at
WHERE EXISTS (
    SELECT FROM (
        SELECT g.source_id, g.channel_id, g.from_time, g.to_time FROM plant.gap AS g
        UNION ALL
        SELECT g.source_id, g.channel_id, g.from_time, g.to_time FROM plant.member_gap AS g
    ) AS g
    JOIN plant.samples AS b ON b.channel_id = c.id AND b.time <= g.to_time
    WHERE g.source_id = c.source_id
      AND (g.channel_id IS NULL OR g.channel_id = c.id)
      AND g.to_time > g.from_time
      AND at.time - g.to_time IN (INTERVAL '1 microsecond', INTERVAL '2 microseconds')
      AND (b.value, b.status) IS NOT DISTINCT FROM (a.value, a.status)
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
