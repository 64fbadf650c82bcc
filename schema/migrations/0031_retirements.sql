-- When channels were retired before they came back: nothing is expected of them of that time. And a channel that has a
-- sample older than its configuration, by its source's time, was read at once.

ALTER TABLE plant.channel ADD COLUMN retirements tstzmultirange NOT NULL DEFAULT '{}';
COMMENT ON COLUMN plant.channel.retirements IS 'When it was retired before it came back: nothing is expected of that time.';

-- As in 0020_channel_version.sql; retired_at says it already.
CREATE OR REPLACE FUNCTION plant._facts(c plant.channel) RETURNS jsonb
LANGUAGE sql STABLE
SET search_path = pg_catalog
AS $$
SELECT c.attributes || (to_jsonb(c) - ARRAY['id', 'source_id', 'attributes', 'retirements'])
       || jsonb_build_object('source', (SELECT s.name FROM plant.source AS s WHERE s.id = c.source_id))
$$;

CREATE OR REPLACE FUNCTION plant.coverage_of(day timestamptz)
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
-- Channels whose first sample of all came on the day, some time after they were configured: nothing was read until then.
unread AS (
    SELECT g.channel_id, greatest(c.configured_at, day) AS from_time, g.first_time AS to_time
    FROM got AS g
    JOIN plant.channel AS c ON c.id = g.channel_id
    JOIN plant.source AS s ON s.id = c.source_id
    JOIN plant.channel_interval AS i ON i.channel_id = c.id
    WHERE c.kind <> 'text' AND s.kind <> 'push' AND c.configured_at < g.first_time
      AND extract(epoch FROM g.first_time - greatest(c.configured_at, day)) >= coalesce(i.seconds, 0)
      -- In this order: what was long before is looked for last. What was before its configuration is a source timestamp.
      AND CASE WHEN EXISTS (SELECT FROM plant.samples_between(ARRAY[g.channel_id], day - INTERVAL '1 day', day)) THEN false
               ELSE NOT plant.has_sample_before(g.channel_id, day) END
),
-- Gaps cut at midnight, and where a channel is not configured; overlapping ones of a channel are joined, so that no second
-- counts twice.
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
    UNION ALL
    SELECT u.channel_id, false, tstzrange(u.from_time, u.to_time) FROM unread AS u
),
joined AS (
    SELECT p.channel_id, coalesce(range_agg(e.piece) FILTER (WHERE NOT p.backfilled), '{}') AS missing,
           coalesce(range_agg(e.piece) FILTER (WHERE p.backfilled), '{}') AS backfilled
    FROM pieces AS p
    JOIN plant.channel AS c ON c.id = p.channel_id
    JOIN plant.source AS s ON s.id = c.source_id
    LEFT JOIN got AS g ON g.channel_id = p.channel_id
    CROSS JOIN LATERAL (
        -- What came with an earlier time than that of its configuration is of the channel as well.
        SELECT tstzmultirange(tstzrange(CASE WHEN c.configured_at IS NOT NULL THEN least(c.configured_at, g.first_time) END,
                                        least(c.retired_at, s.retired_at))) - c.retirements AS configured
    ) AS k
    CROSS JOIN LATERAL (SELECT tstzmultirange(p.piece) * k.configured AS piece) AS e
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
               WHEN coalesce(l.from_midnight, false) OR c.retirements @> day
                 OR EXISTS (SELECT FROM plant.samples_between(ARRAY[coalesce(g.channel_id, l.channel_id)],
                                                              day - INTERVAL '1 day', day))
               THEN day ELSE least(g.first_time, l.first_missing)
           END AS began
    FROM got AS g
    FULL JOIN lengths AS l ON l.channel_id = g.channel_id
    JOIN plant.channel AS c ON c.id = coalesce(g.channel_id, l.channel_id)
),
-- By the interval. Polls are never exactly as far apart: one more than that may have been got.
due AS (
    SELECT t.channel_id, i.seconds IS NOT NULL AS polled,
           round((extract(epoch FROM e.ends - e.began)
                  - (SELECT coalesce(sum(extract(epoch FROM least(upper(r), e.ends) - greatest(lower(r), e.began))), 0)
                     FROM unnest(c.retirements) AS r
                     WHERE lower(r) < e.ends AND upper(r) > e.began))::numeric
                 / i.seconds::numeric)::bigint AS due
    FROM counted AS t
    JOIN plant.channel AS c ON c.id = t.channel_id
    JOIN plant.source AS s ON s.id = c.source_id
    LEFT JOIN plant.channel_interval AS i ON i.channel_id = t.channel_id
    CROSS JOIN LATERAL (
        SELECT coalesce(t.began, day) AS began, least(day + INTERVAL '1 day', now(), c.retired_at, s.retired_at) AS ends
    ) AS e
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
