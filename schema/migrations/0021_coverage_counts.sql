-- Coverage adds up: what was expected is what was got and what is missing, whatever the reason. Samples that are in
-- quarantine are missing, and so is everything of a channel that never had a sample.

ALTER TABLE plant.channel ADD COLUMN configured_at timestamptz;
ALTER TABLE plant.channel ALTER COLUMN configured_at SET DEFAULT clock_timestamp();
COMMENT ON COLUMN plant.channel.configured_at IS 'Since when the channel is known here; NULL: longer than this was noted.';
COMMENT ON COLUMN plant.gap.reason IS 'stopped, killed, disconnected, subscription_lost, not_available, overflow, undecodable, refused, poll_failed, poll_missed, clock_set, spool_full, spool_corrupt, stale.';

CREATE INDEX quarantine_received ON plant.quarantine (received_at);

-- Where a channel's value is not known because it was kept out: from its arrival to the next sample that was not. n is
-- how many samples of the time asked for that are. Without a search path of its own, so that it is planned with its times.
CREATE FUNCTION plant.kept_out(since timestamptz, until timestamptz)
RETURNS TABLE (channel_id int, from_time timestamptz, to_time timestamptz, n bigint)
LANGUAGE sql STABLE
AS $$
WITH
-- What came within the hour before may still be what is not known.
came AS MATERIALIZED (
    SELECT q.channel_id, q.received_at
    FROM plant.quarantine AS q
    WHERE q.received_at >= since - INTERVAL '1 hour' AND q.received_at < until
      AND q.channel_id IS NOT NULL AND NOT q.detail ?| ARRAY['event', 'gap', 'count']
),
readings AS (
    SELECT c.channel_id, c.received_at AS at, false AS stored FROM came AS c
    UNION ALL
    SELECT s.channel_id, s.time, true
    FROM (SELECT DISTINCT c.channel_id FROM came AS c) AS c
    CROSS JOIN LATERAL plant.samples_between(ARRAY[c.channel_id], since - INTERVAL '1 hour', until) AS s
),
ahead AS (
    SELECT r.channel_id, r.at, r.stored,
           min(r.at) FILTER (WHERE r.stored) OVER (PARTITION BY r.channel_id ORDER BY r.at DESC, r.stored) AS next
    FROM readings AS r
)
SELECT a.channel_id, greatest(since, min(a.at)), coalesce(a.next, least(until, now())), count(*) FILTER (WHERE a.at >= since)
FROM ahead AS a
WHERE NOT a.stored AND coalesce(a.next, until) > since
GROUP BY a.channel_id, a.next
$$;
COMMENT ON FUNCTION plant.kept_out IS 'Intervals in which a channel''s samples came and are in quarantine: from the arrival to the next sample that is stored.';

-- A function of its own, so that what asks it is planned with the time that it asks for.
CREATE FUNCTION plant.has_sample_before(channel int, before timestamptz) RETURNS boolean
LANGUAGE sql STABLE
SET search_path = pg_catalog
AS $$
SELECT EXISTS (SELECT FROM plant.last_before(channel, TIMESTAMPTZ '1970-01-01 00:00:00+00', before))
$$;
COMMENT ON FUNCTION plant.has_sample_before IS 'Whether a channel ever had a sample before.';

DROP VIEW plant.coverage;
DROP FUNCTION plant.coverage_of;
CREATE FUNCTION plant.coverage_of(day timestamptz)
RETURNS TABLE (
    channel_id         int,
    name               text,
    expected           bigint,
    got                bigint,
    got_good           bigint,
    missing            bigint,
    missing_seconds    float8,
    backfilled_seconds float8,
    quarantined        bigint
)
LANGUAGE sql STABLE
-- Not with the caller's search path: functions in it could stand in the way of those meant here.
SET search_path = pg_catalog
AS $$
WITH
got AS (
    SELECT s.channel_id, count(*) AS got, count(*) FILTER (WHERE plant.quality(s.status) <> 'bad') AS got_good,
           min(s.time) AS first_time
    FROM plant.samples_between(day, day + INTERVAL '1 day') AS s
    GROUP BY s.channel_id
),
kept_out AS MATERIALIZED (
    SELECT * FROM plant.kept_out(day, day + INTERVAL '1 day')
),
-- Channels without a sample on the day that should have had one: those that are polled, and those that never had one.
silent AS (
    SELECT c.id AS channel_id, e.from_time, e.to_time
    FROM plant.channel AS c
    JOIN plant.source AS s ON s.id = c.source_id
    JOIN plant.channel_interval AS i ON i.channel_id = c.id
    CROSS JOIN LATERAL (
        SELECT CASE WHEN NOT plant.has_sample_before(c.id, day)
                    THEN greatest(c.configured_at, CASE WHEN c.configured_at IS NOT NULL THEN day END)
                    WHEN i.seconds IS NOT NULL THEN day END AS from_time,
               least(day + INTERVAL '1 day', now(), c.retired_at, s.retired_at) AS to_time
    ) AS e
    WHERE c.kind <> 'text' AND s.kind <> 'push' AND e.from_time < e.to_time
      AND NOT EXISTS (SELECT FROM got AS g WHERE g.channel_id = c.id)
),
-- Gaps cut at midnight, and where a channel is no longer configured; overlapping ones of a channel are joined, so that no second counts twice.
pieces AS (
    SELECT g.channel_id, g.backfilled_at IS NOT NULL AS backfilled,
           tstzrange(greatest(g.from_time, day), least(coalesce(g.to_time, now()), day + INTERVAL '1 day')) AS piece
    FROM plant.gap_channel AS g
    WHERE g.from_time < day + INTERVAL '1 day'
      AND coalesce(g.to_time, now()) > day
      AND greatest(g.from_time, day) < least(coalesce(g.to_time, now()), day + INTERVAL '1 day')
    UNION ALL
    SELECT k.channel_id, false, tstzrange(k.from_time, k.to_time) FROM kept_out AS k WHERE k.from_time < k.to_time
    UNION ALL
    SELECT n.channel_id, false, tstzrange(n.from_time, n.to_time) FROM silent AS n
),
joined AS (
    SELECT p.channel_id, coalesce(range_agg(e.piece) FILTER (WHERE NOT p.backfilled), '{}') AS missing,
           coalesce(range_agg(e.piece) FILTER (WHERE p.backfilled), '{}') AS backfilled
    FROM pieces AS p
    JOIN plant.channel AS c ON c.id = p.channel_id
    JOIN plant.source AS s ON s.id = c.source_id
    CROSS JOIN LATERAL (SELECT p.piece * tstzrange(NULL, least(c.retired_at, s.retired_at)) AS piece) AS e
    WHERE NOT isempty(e.piece)
    GROUP BY p.channel_id
),
lengths AS (
    SELECT j.channel_id, j.missing @> day AS from_midnight, lower(j.missing) AS first_missing,
           (SELECT coalesce(sum(extract(epoch FROM upper(r) - lower(r))), 0)::float8 FROM unnest(j.missing) AS r) AS missing,
           (SELECT coalesce(sum(extract(epoch FROM upper(r) - lower(r))), 0)::float8
            FROM unnest(j.backfilled - j.missing) AS r) AS backfilled
    FROM joined AS j
),
refused AS (
    SELECT k.channel_id, sum(k.n)::bigint AS n FROM kept_out AS k GROUP BY k.channel_id
),
counted AS (
    SELECT coalesce(g.channel_id, l.channel_id) AS channel_id, coalesce(g.got, 0) AS got, coalesce(g.got_good, 0) AS got_good,
           coalesce(l.missing, 0) AS missing_seconds, coalesce(l.backfilled, 0) AS backfilled_seconds,
           -- A channel that had nothing the day before, not even a gap, began on this day.
           CASE
               WHEN coalesce(l.from_midnight, false)
                 OR EXISTS (SELECT FROM plant.samples_between(ARRAY[coalesce(g.channel_id, l.channel_id)],
                                                              day - INTERVAL '1 day', day))
               THEN day ELSE least(g.first_time, l.first_missing)
           END AS began
    FROM got AS g
    FULL JOIN lengths AS l ON l.channel_id = g.channel_id
),
-- By the interval. Polls are never exactly as far apart: one more than that may have been got.
due AS (
    SELECT t.channel_id, i.seconds IS NOT NULL AS polled,
           round(extract(epoch FROM least(day + INTERVAL '1 day', now(), c.retired_at, s.retired_at)
                                     - coalesce(t.began, day))::numeric
                 / i.seconds::numeric)::bigint AS due
    FROM counted AS t
    JOIN plant.channel AS c ON c.id = t.channel_id
    JOIN plant.source AS s ON s.id = c.source_id
    LEFT JOIN plant.channel_interval AS i ON i.channel_id = t.channel_id
)
SELECT c.id, c.name,
       CASE WHEN d.polled OR r.n > 0 THEN t.got + m.missing END,
       t.got, t.got_good,
       CASE WHEN d.polled OR r.n > 0 THEN m.missing END,
       t.missing_seconds, t.backfilled_seconds, coalesce(r.n, 0)
FROM counted AS t
JOIN plant.channel AS c ON c.id = t.channel_id
JOIN due AS d ON d.channel_id = t.channel_id
LEFT JOIN refused AS r ON r.channel_id = t.channel_id
CROSS JOIN LATERAL (
    SELECT CASE WHEN d.polled THEN greatest(0, d.due - t.got) ELSE coalesce(r.n, 0) END AS missing
) AS m
$$;
COMMENT ON FUNCTION plant.coverage_of IS 'Coverage of each channel on the day (UTC) that begins then: samples expected, got, and missing, which is the difference (expected and missing are NULL where the channel reports changes only, and none is known to be missing); seconds missing and backfilled; quarantined: how many of those missing came and were kept out.';

CREATE VIEW plant.coverage AS
WITH
-- From the first chunk, gap or channel on: chunks are known without reading samples.
days AS (
    SELECT generate_series(
               date_trunc('day', least(plant.first_sample_day(), (SELECT min(g.from_time) FROM plant.gap AS g),
                                       (SELECT min(c.configured_at) FROM plant.channel AS c)), 'UTC'),
               now(), INTERVAL '1 day') AS day
)
SELECT d.day, o.*
FROM days AS d
CROSS JOIN LATERAL plant.coverage_of(d.day) AS o;
COMMENT ON VIEW plant.coverage IS 'By channel and day (UTC): samples expected, got and missing (NULL where the channel reports changes only), seconds missing and backfilled, and samples in quarantine. Filter by day.';
GRANT SELECT ON plant.coverage TO plant_reader, plant_ingest, plant_owner;
GRANT EXECUTE ON FUNCTION plant.coverage_of, plant.kept_out, plant.has_sample_before TO plant_reader, plant_ingest, plant_owner;
