-- coverage_of: samples expected, received and missing of each channel on a day (UTC)
--
-- Expected samples are always the sum of received and missing ones, whatever the reason. Samples in quarantine are
-- missing, and so are all samples of a channel that never had one. Coverage begins when a channel is configured:
-- earlier gaps of its source do not count, and the time until it is first read is missing. While a channel is retired,
-- nothing is expected. If the first source timestamp is before the configuration, the channel was read at once.
--
-- It counts by samples what the question gaps_and_coverage tells by intervals: this one sees the database alone and
-- whole days; the question sees archived days, any interval, and silence that nobody recorded.
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
      AND NOT EXISTS (SELECT FROM sample_counts AS n WHERE n.channel_id = c.id)
),
-- Channels whose very first sample is of this day, some time after they were configured: nothing was read until then.
not_yet_read AS (
    SELECT n.channel_id, greatest(c.configured_at, plant.midnight(day)) AS from_time, n.first_time AS to_time
    FROM sample_counts AS n
    JOIN plant.channel AS c ON c.id = n.channel_id
    JOIN plant.source AS s ON s.id = c.source_id
    JOIN plant.channel_interval AS i ON i.channel_id = c.id
    WHERE c.kind <> 'text' AND s.kind <> 'push' AND c.configured_at < n.first_time
      AND extract(epoch FROM n.first_time - greatest(c.configured_at, plant.midnight(day))) >= coalesce(i.seconds, 0)
      -- CASE fixes the order: the search through older samples is last. A sample from before the configuration has a
      -- source timestamp.
      AND CASE WHEN EXISTS (SELECT FROM plant.samples_between(ARRAY[n.channel_id], plant.midnight(day - 1),
                                                              plant.midnight(day))) THEN false
               ELSE NOT plant.has_sample_before(n.channel_id, plant.midnight(day)) END
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
    SELECT q.channel_id, false, tstzrange(q.from_time, q.to_time) FROM quarantined AS q WHERE q.from_time < q.to_time
    UNION ALL
    SELECT s.channel_id, false, tstzrange(s.from_time, s.to_time) FROM silent AS s
    UNION ALL
    SELECT r.channel_id, false, tstzrange(r.from_time, r.to_time) FROM not_yet_read AS r
),
lost AS (
    SELECT p.channel_id, coalesce(range_agg(cut.piece) FILTER (WHERE NOT p.backfilled), '{}') AS missing,
           coalesce(range_agg(cut.piece) FILTER (WHERE p.backfilled), '{}') AS backfilled
    FROM pieces AS p
    JOIN plant.channel AS c ON c.id = p.channel_id
    JOIN plant.source AS s ON s.id = c.source_id
    LEFT JOIN sample_counts AS n ON n.channel_id = p.channel_id
    CROSS JOIN LATERAL (
        -- Samples with a time before the configuration belong to the channel as well.
        SELECT tstzmultirange(tstzrange(CASE WHEN c.configured_at IS NOT NULL
                                             THEN least(c.configured_at, n.first_time) END,
                                        least(c.retired_at, s.retired_at))) - c.retirements AS configured
    ) AS life
    CROSS JOIN LATERAL (SELECT tstzmultirange(p.piece) * life.configured AS piece) AS cut
    WHERE NOT isempty(cut.piece)
    GROUP BY p.channel_id
),
lengths AS (
    SELECT l.channel_id, l.missing @> plant.midnight(day) AS from_midnight, lower(l.missing) AS first_missing,
           (SELECT coalesce(sum(extract(epoch FROM upper(r) - lower(r))), 0)::float8
            FROM unnest(l.missing) AS r) AS missing,
           (SELECT coalesce(sum(extract(epoch FROM upper(r) - lower(r))), 0)::float8
            FROM unnest(l.backfilled - l.missing) AS r) AS backfilled
    FROM lost AS l
),
quarantined_counts AS (
    SELECT q.channel_id, sum(q.n)::bigint AS quarantined FROM quarantined AS q GROUP BY q.channel_id
),
counted AS (
    SELECT coalesce(n.channel_id, l.channel_id) AS channel_id, coalesce(n.got, 0) AS got,
           coalesce(n.got_good, 0) AS got_good,
           coalesce(l.missing, 0) AS missing_seconds, coalesce(l.backfilled, 0) AS backfilled_seconds,
           -- A channel without samples and gaps on the day before began on this day.
           CASE
               WHEN coalesce(l.from_midnight, false) OR c.retirements @> plant.midnight(day)
                 OR EXISTS (SELECT FROM plant.samples_between(ARRAY[coalesce(n.channel_id, l.channel_id)],
                                                              plant.midnight(day - 1), plant.midnight(day)))
               THEN plant.midnight(day) ELSE least(n.first_time, l.first_missing)
           END AS began
    FROM sample_counts AS n
    FULL JOIN lengths AS l ON l.channel_id = n.channel_id
    JOIN plant.channel AS c ON c.id = coalesce(n.channel_id, l.channel_id)
),
-- Samples due by the interval. Polls are not exactly equidistant: one more may have been received.
due AS (
    SELECT n.channel_id, i.seconds IS NOT NULL AS polled,
           round((extract(epoch FROM span.ends - span.began)
                  - (SELECT coalesce(sum(extract(epoch FROM least(upper(r), span.ends)
                                                            - greatest(lower(r), span.began))), 0)
                     FROM unnest(c.retirements) AS r
                     WHERE lower(r) < span.ends AND upper(r) > span.began))::numeric
                 / i.seconds::numeric)::bigint AS due
    FROM counted AS n
    JOIN plant.channel AS c ON c.id = n.channel_id
    JOIN plant.source AS s ON s.id = c.source_id
    LEFT JOIN plant.channel_interval AS i ON i.channel_id = n.channel_id
    CROSS JOIN LATERAL (
        SELECT coalesce(n.began, plant.midnight(day)) AS began,
               least(plant.midnight(day + 1), now(), c.retired_at, s.retired_at) AS ends
    ) AS span
)
SELECT c.id, c.name,
       CASE WHEN d.polled OR q.quarantined > 0 THEN n.got + m.missing END,
       n.got, n.got_good,
       CASE WHEN d.polled OR q.quarantined > 0 THEN m.missing END,
       n.missing_seconds, n.backfilled_seconds, coalesce(q.quarantined, 0)
FROM counted AS n
JOIN plant.channel AS c ON c.id = n.channel_id
JOIN due AS d ON d.channel_id = n.channel_id
LEFT JOIN quarantined_counts AS q ON q.channel_id = n.channel_id
CROSS JOIN LATERAL (
    SELECT CASE WHEN d.polled THEN greatest(0, d.due - n.got) ELSE coalesce(q.quarantined, 0) END AS missing
) AS m
$$;
COMMENT ON FUNCTION plant.coverage_of IS
    'Coverage of each channel on a day (UTC): samples expected, received (got) and missing, which is the difference '
    '(expected and missing are NULL if the channel reports changes only and no sample is known to be missing); '
    'seconds missing and backfilled; quarantined: missing samples that arrived but were quarantined.';
GRANT EXECUTE ON FUNCTION plant.coverage_of TO plant_reader, plant_ingest, plant_owner;
