-- gaps_and_coverage: coverage and gaps of each channel, and silent intervals without a recorded gap
--
-- Parameters
--   since     timestamptz  from this moment on
--   until     timestamptz  before this moment (never later than now)
--   channels  text[]       names or patterns [all]
--   complete  boolean      also list channels that are complete, or of which that is not known [false]
--   lookback  interval     time before since that tells the usual distance of a channel with few samples [1 day]
-- covered_percent is the share of time without gaps, quarantined samples and unrecorded silence. expected is the
-- number of samples of a polled channel: stored plus missing. A device that is slower than its interval covers the
-- time but misses samples; its regular gaps are left out, as in chart_gaps, and the reason is poll_stretched.
-- not_yet_read is the time from a channel's configuration to its first value. time_stands_still is the time from the
-- first value with a repeated timestamp, which is not stored, to the next sample. A pushed or imported channel has no
-- interval, but its own usual distance of samples: a silence longer than usual_seconds, which is five times what 90 %
-- of its distances do not exceed, is unrecorded. It takes 20 distances in the interval, or with the time of lookback
-- before it. If there are fewer, covered_percent is NULL: nobody knows.
-- Shown first: channel, covered_percent, missing_seconds, gaps, unrecorded_seconds, reasons
-- Cost: one pass over the channels' samples of the interval: 2 s per million samples.
-- Example: SELECT * FROM plant.gaps_and_coverage('2026-03-09 00:00+00', '2026-03-10 00:00+00');
CREATE OR REPLACE FUNCTION plant.gaps_and_coverage(
    since timestamptz, until timestamptz, channels text[] DEFAULT NULL, complete boolean DEFAULT false,
    lookback interval DEFAULT '1 day'
)
RETURNS TABLE (
    channel text, covered_percent float8, samples bigint, good bigint, gaps bigint, missing_seconds float8,
    longest_seconds float8, backfilled_seconds float8, unrecorded bigint, unrecorded_seconds float8, reasons text,
    expected bigint, missing bigint, usual_seconds float8
)
LANGUAGE sql STABLE
AS $$
WITH
wanted AS (
    SELECT c.channel_id, c.name, i.seconds AS expected, i.source_id, n.configured_at, n.retirements,
           s.kind = 'push' AS pushed, least(until, now(), c.ends) AS ends
    FROM plant.channels_like(channels) AS c
    JOIN plant.channel AS n ON n.id = c.channel_id
    JOIN plant.source AS s ON s.id = n.source_id
    LEFT JOIN plant.channel_interval AS i ON i.channel_id = c.channel_id
    WHERE c.kind <> 'text'
),
quarantined AS MATERIALIZED (
    SELECT * FROM plant.quarantined_intervals(since, until)
),
readings AS (
    SELECT w.channel_id, w.expected, s.time, s.status,
           lag(s.time, 1, since) OVER (PARTITION BY w.channel_id ORDER BY s.time) AS previous,
           lead(s.time) OVER (PARTITION BY w.channel_id ORDER BY s.time) IS NULL AS is_last
    FROM wanted AS w
    CROSS JOIN LATERAL plant.samples_between(ARRAY[w.channel_id], since, until) AS s
),
counts AS (
    SELECT r.channel_id, count(*) AS samples, count(*) FILTER (WHERE plant.quality(r.status) <> 'bad') AS good,
           min(r.time) AS first_time
    FROM readings AS r
    GROUP BY r.channel_id
),
-- Samples are expected from the configuration of a channel, or from its first sample if that is earlier, but not while it
-- is retired.
spans AS (
    SELECT w.*, c.samples, c.good, c.first_time, o.began, e.configured,
           (SELECT sum(extract(epoch FROM upper(r) - lower(r))) FROM unnest(e.configured) AS r) AS seconds
    FROM wanted AS w
    LEFT JOIN counts AS c ON c.channel_id = w.channel_id
    CROSS JOIN LATERAL (
        SELECT CASE WHEN w.configured_at IS NULL THEN since
                    ELSE greatest(since, least(w.configured_at, c.first_time)) END AS began
    ) AS o
    CROSS JOIN LATERAL (
        SELECT tstzmultirange(tstzrange(o.began, greatest(o.began, w.ends))) - w.retirements AS configured
    ) AS e
    WHERE NOT isempty(e.configured)
),
pieces AS (
    SELECT w.channel_id, g.reason, g.backfilled,
           tstzrange(greatest(g.from_time, since), least(coalesce(g.to_time, now()), until)) AS piece
    FROM wanted AS w
    CROSS JOIN LATERAL plant.chart_gaps(w.channel_id, since, least(until, now())) AS g
    UNION ALL
    SELECT k.channel_id, 'quarantined', false, tstzrange(k.from_time, k.to_time)
    FROM quarantined AS k
    WHERE k.from_time < k.to_time
    UNION ALL
    SELECT t.channel_id, 'time_stands_still', false,
           tstzrange(greatest(t.from_time, since), least(t.to_time, now(), until))
    FROM plant.frozen_timestamps(since, until) AS t
    WHERE greatest(t.from_time, since) < least(t.to_time, now(), until)
),
-- All gaps: those of a device that is slow in its regular way explain its silences, too.
recorded AS (
    SELECT g.channel_id, range_agg(tstzrange(g.from_time, g.to_time)) AS pieces
    FROM plant.gap_channel AS g
    WHERE g.from_time < until AND coalesce(g.to_time, 'infinity') > since
    GROUP BY g.channel_id
),
heard AS (
    SELECT w.channel_id, w.expected, w.began, least(w.first_time, min(lower(p.piece))) AS first_time
    FROM spans AS w
    LEFT JOIN pieces AS p ON p.channel_id = w.channel_id AND upper(p.piece) > w.began
    WHERE w.configured_at IS NOT NULL AND NOT w.pushed
    GROUP BY w.channel_id, w.expected, w.began, w.first_time
),
unread AS (
    SELECT h.channel_id, 'not_yet_read' AS reason, false AS backfilled, tstzrange(h.began, h.first_time) AS piece
    FROM heard AS h
    WHERE h.began < h.first_time AND extract(epoch FROM h.first_time - h.began) >= coalesce(h.expected, 0)
      -- A sample from before the configuration has a source timestamp: the channel was read at once.
      AND NOT plant.has_sample_before(h.channel_id, h.began)
),
-- Actual intervals between polls, by source and configured interval, with begin and end.
paces AS (
    SELECT e.source_id, e.seconds, e.pace, e.time AS from_time,
           lead(e.time, 1, 'infinity') OVER (PARTITION BY e.source_id, e.seconds ORDER BY e.time) AS to_time
    FROM (
        SELECT e.source_id, e.time, (e.detail ->> 'interval_seconds')::float8 AS seconds,
               CASE WHEN e.text = 'stretched' THEN (e.detail ->> 'pace_seconds')::float8 END AS pace
        FROM plant.event AS e
        WHERE e.type = 'poll_stretched' AND e.time < until
    ) AS e
),
stretched AS (
    SELECT DISTINCT w.channel_id
    FROM wanted AS w
    JOIN paces AS p ON p.source_id = w.source_id AND p.seconds = w.expected AND p.pace IS NOT NULL AND p.to_time > since
),
-- Overlapping gaps are merged, so that no second counts twice. Missing time takes precedence over backfilled time.
joined AS (
    SELECT p.channel_id, coalesce(range_agg(e.piece) FILTER (WHERE NOT p.backfilled), '{}') AS missing,
           coalesce(range_agg(e.piece) FILTER (WHERE p.backfilled), '{}') AS backfilled,
           string_agg(DISTINCT p.reason, ', ' ORDER BY p.reason) AS reasons
    FROM (SELECT * FROM pieces UNION ALL SELECT * FROM unread) AS p
    JOIN spans AS w ON w.channel_id = p.channel_id
    CROSS JOIN LATERAL (SELECT tstzmultirange(p.piece) * w.configured AS piece) AS e
    WHERE NOT isempty(e.piece)
    GROUP BY p.channel_id
),
refused AS (
    SELECT k.channel_id, sum(k.n) AS n FROM quarantined AS k GROUP BY k.channel_id HAVING sum(k.n) > 0
),
lengths AS (
    SELECT j.channel_id, j.reasons,
           (SELECT count(*) FROM unnest(j.missing)) AS gaps,
           (SELECT coalesce(sum(extract(epoch FROM upper(r) - lower(r))), 0)
            FROM unnest(j.missing) AS r)::float8 AS missing,
           (SELECT coalesce(max(extract(epoch FROM upper(r) - lower(r))), 0)
            FROM unnest(j.missing) AS r)::float8 AS longest,
           (SELECT coalesce(sum(extract(epoch FROM upper(r) - lower(r))), 0)
            FROM unnest(j.backfilled - j.missing) AS r)::float8 AS backfilled
    FROM joined AS j
),
dense AS MATERIALIZED (
    SELECT p.*
    FROM (SELECT array_agg(w.channel_id) AS ids FROM wanted AS w WHERE w.pushed) AS w
    CROSS JOIN LATERAL plant.pauses(w.ids, since, until) AS p
),
sparse AS MATERIALIZED (
    SELECT p.*
    FROM (
        SELECT array_agg(w.channel_id) AS ids
        FROM wanted AS w
        WHERE w.pushed AND w.channel_id NOT IN (SELECT d.channel_id FROM dense AS d)
    ) AS w
    CROSS JOIN LATERAL plant.pauses(w.ids, since - lookback, until) AS p
),
learned AS (
    SELECT d.channel_id, d.usual_seconds FROM dense AS d
    UNION
    SELECT s.channel_id, s.usual_seconds FROM sparse AS s
),
-- Polled channels: silences of at least three intervals, including those at the bounds. Pushed ones: longer than usual.
silences AS (
    SELECT r.channel_id, greatest(r.previous, w.began) AS from_time, r.time AS to_time
    FROM readings AS r
    JOIN spans AS w ON w.channel_id = r.channel_id
    WHERE extract(epoch FROM r.time - greatest(r.previous, w.began)) >= 3 * r.expected
      AND NOT EXISTS (SELECT FROM paces AS p
                      WHERE p.source_id = w.source_id AND p.seconds = w.expected
                        AND p.from_time <= r.time + (r.time - r.previous) AND p.to_time >= r.previous
                        AND extract(epoch FROM r.time - r.previous) < 3 * p.pace)
    UNION ALL
    SELECT r.channel_id, r.time, w.ends
    FROM readings AS r
    JOIN spans AS w ON w.channel_id = r.channel_id
    WHERE r.is_last
      AND extract(epoch FROM w.ends - r.time)
          >= 3 * greatest(r.expected, (SELECT max(p.pace) FROM paces AS p
                                       WHERE p.source_id = w.source_id AND p.seconds = w.expected AND p.to_time > r.time))
    UNION ALL
    SELECT w.channel_id, w.began, w.ends
    FROM spans AS w
    WHERE w.samples IS NULL
      AND (w.expected IS NOT NULL
           -- If a channel reports changes, its last sample holds, if there is one.
           OR (NOT w.pushed AND NOT plant.has_sample_before(w.channel_id, w.began)))
    UNION ALL
    SELECT p.channel_id, greatest(p.from_time, w.began), least(p.to_time, w.ends)
    FROM (SELECT * FROM dense UNION ALL SELECT * FROM sparse) AS p
    JOIN spans AS w ON w.channel_id = p.channel_id
    WHERE extract(epoch FROM least(p.to_time, w.ends) - greatest(p.from_time, w.began)) > p.usual_seconds
    UNION ALL
    SELECT w.channel_id, w.began, w.first_time
    FROM spans AS w
    JOIN (SELECT DISTINCT d.channel_id, d.usual_seconds FROM dense AS d) AS d ON d.channel_id = w.channel_id
    WHERE CASE WHEN extract(epoch FROM w.first_time - w.began) > d.usual_seconds
               THEN plant.has_sample_before(w.channel_id, w.began) END
),
-- The part of a silence outside all gaps, backfilled or not. A remainder that is not long enough itself does not count.
unexplained AS (
    SELECT s.channel_id, count(*) AS n, sum(extract(epoch FROM upper(r.piece) - lower(r.piece)))::float8 AS seconds
    FROM silences AS s
    JOIN spans AS w ON w.channel_id = s.channel_id
    LEFT JOIN joined AS j ON j.channel_id = s.channel_id
    LEFT JOIN recorded AS g ON g.channel_id = s.channel_id
    LEFT JOIN learned AS d ON d.channel_id = s.channel_id
    CROSS JOIN LATERAL unnest(tstzmultirange(tstzrange(s.from_time, s.to_time)) * w.configured
                              - coalesce(j.missing, '{}') - coalesce(g.pieces, '{}')) AS r (piece)
    WHERE extract(epoch FROM upper(r.piece) - lower(r.piece)) >= coalesce(3 * w.expected, d.usual_seconds, 0)
    GROUP BY s.channel_id
)
SELECT w.name,
       -- So many digits that only complete coverage is rounded to 100.
       CASE WHEN NOT w.pushed OR d.channel_id IS NOT NULL OR l.missing >= w.seconds
            THEN round(greatest(0, 100 * (1 - (coalesce(l.missing, 0) + coalesce(u.seconds, 0))
                                         / w.seconds::float8))::numeric, 9)::float8 END,
       coalesce(w.samples, 0), coalesce(w.good, 0), coalesce(l.gaps, 0), coalesce(l.missing, 0), coalesce(l.longest, 0),
       coalesce(l.backfilled, 0), coalesce(u.n, 0), coalesce(u.seconds, 0),
       concat_ws(', ', l.reasons, CASE WHEN p.channel_id IS NOT NULL THEN 'poll_stretched' END),
       coalesce(w.samples, 0) + m.missing, m.missing, d.usual_seconds
FROM spans AS w
LEFT JOIN learned AS d ON d.channel_id = w.channel_id
LEFT JOIN stretched AS p ON p.channel_id = w.channel_id
LEFT JOIN refused AS k ON k.channel_id = w.channel_id
CROSS JOIN LATERAL (
    -- Polls are not exactly equidistant: there may be one more than is due.
    SELECT CASE WHEN w.expected IS NULL THEN k.n
                ELSE greatest(0, round(w.seconds / w.expected::numeric) - coalesce(w.samples, 0)) END::bigint AS missing
) AS m
LEFT JOIN lengths AS l ON l.channel_id = w.channel_id
LEFT JOIN unexplained AS u ON u.channel_id = w.channel_id
WHERE complete OR l.channel_id IS NOT NULL OR u.channel_id IS NOT NULL OR p.channel_id IS NOT NULL
   OR w.good < w.samples
ORDER BY 2, w.name
$$;
