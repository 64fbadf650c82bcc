-- Expected samples are always the sum of received and missing ones, whatever the reason. Samples in quarantine are
-- missing, and so are all samples of a channel that never had one. Coverage begins when a channel is configured:
-- earlier gaps of its source do not count, and the time until it is first read is missing. While a channel is retired,
-- nothing is expected. If the first source timestamp is before the configuration, the channel was read at once.
CREATE OR REPLACE FUNCTION plant.coverage_of(day date)
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
-- Not the caller's search path: functions in it could shadow those meant here.
SET search_path = pg_catalog
AS $$
WITH
sample_counts AS (
    SELECT s.channel_id, count(*) AS got, count(*) FILTER (WHERE plant.quality(s.status) <> 'bad') AS got_good,
           min(s.time) AS first_time
    FROM plant.samples_between(plant.midnight(day), plant.midnight(day + 1)) AS s
    GROUP BY s.channel_id
),
quarantined AS MATERIALIZED (
    SELECT * FROM plant.quarantined_intervals(plant.midnight(day), plant.midnight(day + 1))
),
-- Channels that should have had a sample on the day but have none: polled ones, and those that never had one.
silent AS (
    SELECT c.id AS channel_id, e.from_time, e.to_time
    FROM plant.channel AS c
    JOIN plant.source AS s ON s.id = c.source_id
    JOIN plant.channel_interval AS i ON i.channel_id = c.id
    CROSS JOIN LATERAL (
        SELECT CASE WHEN NOT plant.has_sample_before(c.id, plant.midnight(day))
                    THEN greatest(c.configured_at, CASE WHEN c.configured_at IS NOT NULL THEN plant.midnight(day) END)
                    WHEN i.seconds IS NOT NULL THEN plant.midnight(day) END AS from_time,
               least(plant.midnight(day + 1), now(), c.retired_at, s.retired_at) AS to_time
    ) AS e
    WHERE c.kind <> 'text' AND s.kind <> 'push' AND e.from_time < e.to_time
      AND NOT EXISTS (SELECT FROM sample_counts AS g WHERE g.channel_id = c.id)
),
-- Channels whose very first sample is of this day, some time after they were configured: nothing was read until then.
not_yet_read AS (
    SELECT g.channel_id, greatest(c.configured_at, plant.midnight(day)) AS from_time, g.first_time AS to_time
    FROM sample_counts AS g
    JOIN plant.channel AS c ON c.id = g.channel_id
    JOIN plant.source AS s ON s.id = c.source_id
    JOIN plant.channel_interval AS i ON i.channel_id = c.id
    WHERE c.kind <> 'text' AND s.kind <> 'push' AND c.configured_at < g.first_time
      AND extract(epoch FROM g.first_time - greatest(c.configured_at, plant.midnight(day))) >= coalesce(i.seconds, 0)
      -- CASE fixes the order: the search through older samples is last. A sample from before the configuration has a
      -- source timestamp.
      AND CASE WHEN EXISTS (SELECT FROM plant.samples_between(ARRAY[g.channel_id], plant.midnight(day - 1),
                                                              plant.midnight(day))) THEN false
               ELSE NOT plant.has_sample_before(g.channel_id, plant.midnight(day)) END
),
-- Gaps, cut to the day and to the time in which the channel was configured. Overlapping gaps of a channel are merged,
-- so that no second counts twice.
pieces AS (
    SELECT g.channel_id, g.backfilled_at IS NOT NULL AS backfilled,
           tstzrange(greatest(g.from_time, plant.midnight(day)),
                     least(coalesce(g.to_time, now()), plant.midnight(day + 1))) AS piece
    FROM plant.gap_channel AS g
    WHERE g.from_time < plant.midnight(day + 1)
      AND coalesce(g.to_time, now()) > plant.midnight(day)
      AND greatest(g.from_time, plant.midnight(day)) < least(coalesce(g.to_time, now()), plant.midnight(day + 1))
    UNION ALL
    SELECT k.channel_id, false, tstzrange(k.from_time, k.to_time) FROM quarantined AS k WHERE k.from_time < k.to_time
    UNION ALL
    SELECT n.channel_id, false, tstzrange(n.from_time, n.to_time) FROM silent AS n
    UNION ALL
    SELECT u.channel_id, false, tstzrange(u.from_time, u.to_time) FROM not_yet_read AS u
),
joined AS (
    SELECT p.channel_id, coalesce(range_agg(e.piece) FILTER (WHERE NOT p.backfilled), '{}') AS missing,
           coalesce(range_agg(e.piece) FILTER (WHERE p.backfilled), '{}') AS backfilled
    FROM pieces AS p
    JOIN plant.channel AS c ON c.id = p.channel_id
    JOIN plant.source AS s ON s.id = c.source_id
    LEFT JOIN sample_counts AS g ON g.channel_id = p.channel_id
    CROSS JOIN LATERAL (
        -- Samples with a time before the configuration belong to the channel as well.
        SELECT tstzmultirange(tstzrange(CASE WHEN c.configured_at IS NOT NULL
                                             THEN least(c.configured_at, g.first_time) END,
                                        least(c.retired_at, s.retired_at))) - c.retirements AS configured
    ) AS k
    CROSS JOIN LATERAL (SELECT tstzmultirange(p.piece) * k.configured AS piece) AS e
    WHERE NOT isempty(e.piece)
    GROUP BY p.channel_id
),
lengths AS (
    SELECT j.channel_id, j.missing @> plant.midnight(day) AS from_midnight, lower(j.missing) AS first_missing,
           (SELECT coalesce(sum(extract(epoch FROM upper(r) - lower(r))), 0)::float8
            FROM unnest(j.missing) AS r) AS missing,
           (SELECT coalesce(sum(extract(epoch FROM upper(r) - lower(r))), 0)::float8
            FROM unnest(j.backfilled - j.missing) AS r) AS backfilled
    FROM joined AS j
),
quarantined_counts AS (
    SELECT k.channel_id, sum(k.n)::bigint AS n FROM quarantined AS k GROUP BY k.channel_id
),
counted AS (
    SELECT coalesce(g.channel_id, l.channel_id) AS channel_id, coalesce(g.got, 0) AS got,
           coalesce(g.got_good, 0) AS got_good,
           coalesce(l.missing, 0) AS missing_seconds, coalesce(l.backfilled, 0) AS backfilled_seconds,
           -- A channel without samples and gaps on the day before began on this day.
           CASE
               WHEN coalesce(l.from_midnight, false) OR c.retirements @> plant.midnight(day)
                 OR EXISTS (SELECT FROM plant.samples_between(ARRAY[coalesce(g.channel_id, l.channel_id)],
                                                              plant.midnight(day - 1), plant.midnight(day)))
               THEN plant.midnight(day) ELSE least(g.first_time, l.first_missing)
           END AS began
    FROM sample_counts AS g
    FULL JOIN lengths AS l ON l.channel_id = g.channel_id
    JOIN plant.channel AS c ON c.id = coalesce(g.channel_id, l.channel_id)
),
-- Samples due by the interval. Polls are not exactly equidistant: one more may have been received.
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
        SELECT coalesce(t.began, plant.midnight(day)) AS began,
               least(plant.midnight(day + 1), now(), c.retired_at, s.retired_at) AS ends
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
LEFT JOIN quarantined_counts AS r ON r.channel_id = t.channel_id
CROSS JOIN LATERAL (
    SELECT CASE WHEN d.polled THEN greatest(0, d.due - t.got) ELSE coalesce(r.n, 0) END AS missing
) AS m
$$;
COMMENT ON FUNCTION plant.coverage_of IS
    'Coverage of each channel on a day (UTC): samples expected, received (got) and missing, which is the difference '
    '(expected and missing are NULL if the channel reports changes only and no sample is known to be missing); '
    'seconds missing and backfilled; quarantined: missing samples that arrived but were quarantined.';
GRANT EXECUTE ON FUNCTION plant.coverage_of TO plant_reader, plant_ingest, plant_owner;
