-- Intervals in which a channel's value is unknown because samples are in quarantine: from the arrival of such a sample
-- to the next stored one. n: number of quarantined samples from since on. The function sets no search path, so that it
-- is planned with its times.
CREATE OR REPLACE FUNCTION plant.quarantined_intervals(since timestamptz, until timestamptz)
RETURNS TABLE (channel_id int, from_time timestamptz, to_time timestamptz, n bigint)
LANGUAGE sql STABLE
AS $$
WITH
-- A sample quarantined in the hour before may still leave the value unknown.
quarantined AS MATERIALIZED (
    SELECT q.channel_id, q.received_at
    FROM plant.quarantine AS q
    WHERE q.received_at >= since - INTERVAL '1 hour' AND q.received_at < until
      AND q.channel_id IS NOT NULL AND NOT q.detail ?| ARRAY['event', 'gap', 'count']
),
readings AS (
    SELECT c.channel_id, c.received_at AS at, false AS stored FROM quarantined AS c
    UNION ALL
    SELECT s.channel_id, s.time, true
    FROM (SELECT DISTINCT c.channel_id FROM quarantined AS c) AS c
    CROSS JOIN LATERAL plant.samples_between(ARRAY[c.channel_id], since - INTERVAL '1 hour', until) AS s
),
with_next AS (
    SELECT r.channel_id, r.at, r.stored,
           min(r.at) FILTER (WHERE r.stored) OVER (PARTITION BY r.channel_id ORDER BY r.at DESC, r.stored) AS next
    FROM readings AS r
)
SELECT a.channel_id, greatest(since, min(a.at)), coalesce(a.next, least(until, now())),
       count(*) FILTER (WHERE a.at >= since)
FROM with_next AS a
WHERE NOT a.stored AND coalesce(a.next, until) > since
GROUP BY a.channel_id, a.next
$$;
COMMENT ON FUNCTION plant.quarantined_intervals IS
    'Intervals in which a channel''s samples are in quarantine: '
    'from the arrival of one to the next sample that is stored.';
GRANT EXECUTE ON FUNCTION plant.quarantined_intervals TO plant_reader, plant_ingest, plant_owner;
