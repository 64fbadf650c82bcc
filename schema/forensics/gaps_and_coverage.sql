-- gaps_and_coverage: what each channel has and lacks, and which silences nobody recorded
--
-- Parameters
--   since     timestamptz  from this moment on
--   until     timestamptz  before this moment (never later than now)
--   channels  text[]       names or patterns [all]
--   complete  boolean      also the channels that lack nothing [false]
-- Cost: one pass over the channels' samples of the interval: 2 s a million.
-- Example: SELECT * FROM plant.gaps_and_coverage('2026-03-09 00:00+00', '2026-03-10 00:00+00');
CREATE OR REPLACE FUNCTION plant.gaps_and_coverage(
    since timestamptz, until timestamptz, channels text[] DEFAULT NULL, complete boolean DEFAULT false
)
RETURNS TABLE (
    channel text, covered_percent float8, samples bigint, good bigint, gaps bigint, missing_seconds float8,
    longest_seconds float8, backfilled_seconds float8, unrecorded bigint, unrecorded_seconds float8, reasons text
)
LANGUAGE sql STABLE
AS $$
WITH
wanted AS (
    SELECT c.channel_id, c.name, i.seconds AS expected
    FROM plant.channels_like(channels) AS c
    LEFT JOIN plant.channel_interval AS i ON i.channel_id = c.channel_id
    WHERE c.kind <> 'text'
),
pieces AS (
    SELECT g.channel_id, g.reason, g.backfilled_at IS NOT NULL AS backfilled,
           tstzrange(greatest(g.from_time, since), least(coalesce(g.to_time, now()), until)) AS piece
    FROM plant.gap_channel AS g
    WHERE g.from_time < least(until, now()) AND coalesce(g.to_time, now()) > since
),
-- Overlapping gaps are joined, so that no second counts twice; what is still missing wins over what was backfilled.
joined AS (
    SELECT p.channel_id, coalesce(range_agg(p.piece) FILTER (WHERE NOT p.backfilled), '{}') AS missing,
           coalesce(range_agg(p.piece) FILTER (WHERE p.backfilled), '{}') AS backfilled,
           string_agg(DISTINCT p.reason, ', ' ORDER BY p.reason) AS reasons
    FROM pieces AS p
    GROUP BY p.channel_id
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
readings AS (
    SELECT w.channel_id, w.expected, s.time, s.status,
           lag(s.time, 1, since) OVER (PARTITION BY w.channel_id ORDER BY s.time) AS previous,
           lead(s.time) OVER (PARTITION BY w.channel_id ORDER BY s.time) IS NULL AS is_last
    FROM wanted AS w
    CROSS JOIN LATERAL plant.samples_between(ARRAY[w.channel_id], since, until) AS s
),
counts AS (
    SELECT r.channel_id, count(*) AS samples, count(*) FILTER (WHERE plant.quality(r.status) <> 'bad') AS good
    FROM readings AS r
    GROUP BY r.channel_id
),
-- Of a channel that is read at an interval: silences of three intervals and more, up to the ends of the time asked for.
silences AS (
    SELECT r.channel_id, r.previous AS from_time, r.time AS to_time
    FROM readings AS r
    WHERE extract(epoch FROM r.time - r.previous) >= 3 * r.expected
    UNION ALL
    SELECT r.channel_id, r.time, least(until, now())
    FROM readings AS r
    WHERE r.is_last AND extract(epoch FROM least(until, now()) - r.time) >= 3 * r.expected
    UNION ALL
    SELECT w.channel_id, since, least(until, now())
    FROM wanted AS w
    WHERE w.expected IS NOT NULL AND NOT EXISTS (SELECT FROM counts AS c WHERE c.channel_id = w.channel_id)
),
-- What of a silence no gap explains, backfilled or not. A remainder as short as an interval is its edge.
unexplained AS (
    SELECT s.channel_id, count(*) AS n, sum(extract(epoch FROM upper(r.piece) - lower(r.piece)))::float8 AS seconds
    FROM silences AS s
    JOIN wanted AS w ON w.channel_id = s.channel_id
    LEFT JOIN joined AS j ON j.channel_id = s.channel_id
    CROSS JOIN LATERAL unnest(tstzmultirange(tstzrange(s.from_time, s.to_time))
                              - coalesce(j.missing + j.backfilled, '{}')) AS r (piece)
    WHERE extract(epoch FROM upper(r.piece) - lower(r.piece)) >= 3 * w.expected
    GROUP BY s.channel_id
)
SELECT w.name,
       100 * (1 - (coalesce(l.missing, 0) + coalesce(u.seconds, 0))
                  / extract(epoch FROM least(until, now()) - since)::float8),
       coalesce(c.samples, 0), coalesce(c.good, 0), coalesce(l.gaps, 0), coalesce(l.missing, 0), coalesce(l.longest, 0),
       coalesce(l.backfilled, 0), coalesce(u.n, 0), coalesce(u.seconds, 0), coalesce(l.reasons, '')
FROM wanted AS w
LEFT JOIN counts AS c ON c.channel_id = w.channel_id
LEFT JOIN lengths AS l ON l.channel_id = w.channel_id
LEFT JOIN unexplained AS u ON u.channel_id = w.channel_id
WHERE complete OR l.channel_id IS NOT NULL OR u.channel_id IS NOT NULL OR coalesce(c.good, 0) < coalesce(c.samples, 0)
ORDER BY 2, w.name
$$;
