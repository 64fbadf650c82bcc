-- gaps_and_coverage: coverage and gaps of each channel, and silent intervals without a recorded gap
--
-- Parameters
--   since     timestamptz  from this moment on
--   until     timestamptz  before this moment (never later than now)
--   channels  text[]       names or patterns [NULL: all]
--   complete  boolean      also list channels that are complete, or of which that is not known [false]
--   lookback  interval     time before since that tells the usual distance of a channel with few samples [1 day]
-- covered_percent is the share of time without gaps, quarantined samples and unrecorded silence. expected is the
-- number of samples of a polled channel: stored plus missing. A device that is slower than its interval covers the
-- time but misses samples; its regular gaps are left out, as in chart_gaps, and the reason is poll_stretched.
-- not_yet_read is the time from a channel's configuration to its first value or gap, or until now, also before the
-- first start of its collector. time_stands_still is the time from the first value with a repeated timestamp, which is
-- not stored, to the next sample. A pushed or imported channel has no interval, but its own usual distance of samples:
-- a silence longer than usual_seconds, which is five times what 90 % of its distances do not exceed, is unrecorded. It
-- takes 20 distances in the interval, or with the time of lookback before it. If there are fewer, covered_percent is
-- NULL: nobody knows.
-- Shown first: channel, covered_percent, missing_seconds, gaps, unrecorded_seconds, reasons
-- Portions: channel
-- Cost: one pass over the channels' samples of the interval: 2 s per million samples.
-- Example: plantlog ask gaps_and_coverage --from 2026-03-09T00:00Z --to 2026-03-10T00:00Z
--
-- DuckDB has no multiranges. A set of intervals is a table with from_time and to_time; where sets are united or
-- subtracted, their edges are put in order, and between two edges it is known what applies.
WITH
selected AS (
    SELECT c.channel_id, c.name, c.expected, c.source_id, c.configured_at, c.source_kind = 'push' AS pushed,
           least(until, now(), c.ends) AS ends
    FROM described_channel AS c
    WHERE c.kind <> 'text' AND (channels IS NULL OR c.channel_id IN channel_ids(channels))
),
quarantined AS MATERIALIZED (
    SELECT * FROM quarantined_intervals(channels, since, until)
),
-- Parted where there may be a silence.
parts AS MATERIALIZED (
    SELECT b.channel_id, b.samples, b.not_bad, b.first_time, b.last_time
    FROM intervals_of(channels, since, until, to_microseconds(floor(3e6 * shortest_interval(channels))::BIGINT)) AS b
),
counts AS MATERIALIZED (
    SELECT p.channel_id, sum(p.samples)::BIGINT AS samples, sum(p.not_bad)::BIGINT AS good,
           min(p.first_time) AS first_time, max(p.last_time) AS last_time
    FROM parts AS p
    GROUP BY p.channel_id
),
pauses AS (
    SELECT p.channel_id, p.first_time AS time,
           coalesce(max(p.last_time) OVER (PARTITION BY p.channel_id ORDER BY p.first_time
                                           ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), since) AS previous
    FROM parts AS p
),
-- Samples are expected from the configuration of a channel, or from its first sample if that is earlier, but not while
-- it is retired.
begun AS (
    SELECT sel.*, c.samples, c.good, c.first_time, c.last_time,
           CASE WHEN sel.configured_at IS NULL THEN since
                ELSE greatest(since, least(sel.configured_at, c.first_time)) END AS began
    FROM selected AS sel
    LEFT JOIN counts AS c ON c.channel_id = sel.channel_id
),
retired AS (
    SELECT r.channel_id, r.from_time, r.to_time
    FROM retirement AS r
    JOIN begun AS b ON b.channel_id = r.channel_id AND r.from_time < b.ends AND r.to_time > b.began
),
-- Retirements do not overlap: the time before the first one, between two, and after the last one.
configured AS MATERIALIZED (
    SELECT f.channel_id, f.time AS from_time, t.time AS to_time
    FROM (SELECT e.*, row_number() OVER (PARTITION BY e.channel_id ORDER BY e.time) AS place
          FROM (SELECT b.channel_id, b.began AS time FROM begun AS b
                UNION ALL SELECT r.channel_id, r.to_time FROM retired AS r) AS e) AS f
    JOIN (SELECT e.*, row_number() OVER (PARTITION BY e.channel_id ORDER BY e.time) AS place
          FROM (SELECT b.channel_id, b.ends AS time FROM begun AS b
                UNION ALL SELECT r.channel_id, r.from_time FROM retired AS r) AS e) AS t
      ON t.channel_id = f.channel_id AND t.place = f.place
    WHERE f.time < t.time
),
spans AS MATERIALIZED (
    SELECT b.*, c.seconds
    FROM begun AS b
    JOIN (SELECT c.channel_id, sum(epoch_us(c.to_time) - epoch_us(c.from_time)) / 1e6 AS seconds
          FROM configured AS c
          GROUP BY c.channel_id) AS c ON c.channel_id = b.channel_id
),
pieces AS MATERIALIZED (
    SELECT g.channel_id, g.reason, g.backfilled,
           greatest(g.from_time, since) AS from_time, least(coalesce(g.to_time, now()), until) AS to_time
    FROM chart_gaps(channels, since, least(until, now())) AS g
    UNION ALL
    SELECT k.channel_id, 'quarantined', false, k.from_time, k.to_time
    FROM quarantined AS k
    WHERE k.from_time < k.to_time
    UNION ALL
    SELECT t.channel_id, 'time_stands_still', false, greatest(t.from_time, since), least(t.to_time, now(), until)
    FROM frozen_timestamps(since, until) AS t
    WHERE greatest(t.from_time, since) < least(t.to_time, now(), until)
),
heard AS (
    SELECT sp.channel_id, sp.expected, sp.began, least(sp.first_time, min(p.from_time), sp.ends) AS first_time
    FROM spans AS sp
    LEFT JOIN pieces AS p ON p.channel_id = sp.channel_id AND p.to_time > sp.began
    WHERE sp.configured_at IS NOT NULL AND NOT sp.pushed
    GROUP BY sp.channel_id, sp.expected, sp.began, sp.first_time, sp.ends
),
not_yet_read AS (
    SELECT h.channel_id, 'not_yet_read' AS reason, false AS backfilled, h.began AS from_time, h.first_time AS to_time
    FROM heard AS h
    -- A sample from before the configuration has a source timestamp: the channel was read at once.
    WHERE CASE WHEN h.began < h.first_time
                    AND (epoch_us(h.first_time) - epoch_us(h.began)) / 1e6 >= coalesce(h.expected, 0)
               THEN NOT has_sample_before(h.channel_id, h.began) ELSE false END
),
-- Actual intervals between polls, by source and configured interval, with begin and end.
paces AS MATERIALIZED (
    SELECT e.source_id, e.seconds, e.pace, e.time AS from_time,
           lead(e.time, 1, 'infinity'::TIMESTAMPTZ) OVER (PARTITION BY e.source_id, e.seconds ORDER BY e.time)
               AS to_time
    FROM (
        SELECT e.source_id, e.time, (e.detail ->> 'interval_seconds')::DOUBLE AS seconds,
               CASE WHEN e.text = 'stretched' THEN (e.detail ->> 'pace_seconds')::DOUBLE END AS pace
        FROM event AS e
        WHERE e.type = 'poll_stretched' AND e.time < until
    ) AS e
),
stretched AS (
    SELECT DISTINCT sel.channel_id
    FROM selected AS sel
    JOIN paces AS p ON p.source_id = sel.source_id AND p.seconds = sel.expected AND p.pace IS NOT NULL
                   AND p.to_time > since
),
dense_pauses AS MATERIALIZED (
    SELECT unnest(pauses(p.channels, epoch_us(since), epoch_us(until)), recursive := true)
    FROM (SELECT list(sel.channel_id) AS channels FROM selected AS sel WHERE sel.pushed HAVING count(*) > 0) AS p
),
sparse_pauses AS MATERIALIZED (
    SELECT unnest(pauses(p.channels, epoch_us(since - lookback), epoch_us(until)), recursive := true)
    FROM (SELECT list(sel.channel_id) AS channels
          FROM selected AS sel
          WHERE sel.pushed AND sel.channel_id NOT IN (SELECT d.channel_id FROM dense_pauses AS d)
          HAVING count(*) > 0) AS p
),
usual_pauses AS MATERIALIZED (
    SELECT d.channel_id, d.usual_seconds FROM dense_pauses AS d
    UNION
    SELECT s.channel_id, s.usual_seconds FROM sparse_pauses AS s
),
-- Polled channels: silences of at least three intervals, including those at the bounds. Pushed ones: longer than usual.
silences AS (
    SELECT r.channel_id, greatest(r.previous, sp.began) AS from_time, r.time AS to_time
    FROM pauses AS r
    JOIN spans AS sp ON sp.channel_id = r.channel_id
    WHERE (epoch_us(r.time) - epoch_us(greatest(r.previous, sp.began))) / 1e6 >= 3 * sp.expected
      AND NOT EXISTS (FROM paces AS p
                      WHERE p.source_id = sp.source_id AND p.seconds = sp.expected
                        AND p.from_time <= r.time + (r.time - r.previous) AND p.to_time >= r.previous
                        AND (epoch_us(r.time) - epoch_us(r.previous)) / 1e6 < 3 * p.pace)
    UNION ALL
    SELECT sp.channel_id, sp.last_time, sp.ends
    FROM spans AS sp
    WHERE (epoch_us(sp.ends) - epoch_us(sp.last_time)) / 1e6
          >= 3 * greatest(sp.expected, (SELECT max(p.pace) FROM paces AS p
                                       WHERE p.source_id = sp.source_id AND p.seconds = sp.expected
                                         AND p.to_time > sp.last_time))
    UNION ALL
    SELECT sp.channel_id, sp.began, sp.ends
    FROM spans AS sp
    WHERE CASE WHEN sp.samples IS NOT NULL THEN false
               WHEN sp.expected IS NOT NULL THEN true
               WHEN sp.pushed THEN false
               -- If a channel reports changes, its last sample holds, if there is one.
               ELSE NOT has_sample_before(sp.channel_id, sp.began) END
    UNION ALL
    SELECT p.channel_id, greatest(p.from_time, sp.began), least(p.to_time, sp.ends)
    FROM (SELECT * FROM dense_pauses UNION ALL SELECT * FROM sparse_pauses) AS p
    JOIN spans AS sp ON sp.channel_id = p.channel_id
    WHERE (epoch_us(least(p.to_time, sp.ends)) - epoch_us(greatest(p.from_time, sp.began))) / 1e6 > p.usual_seconds
    UNION ALL
    SELECT sp.channel_id, sp.began, sp.first_time
    FROM spans AS sp
    JOIN (SELECT DISTINCT d.channel_id, d.usual_seconds FROM dense_pauses AS d) AS d ON d.channel_id = sp.channel_id
    WHERE CASE WHEN (epoch_us(sp.first_time) - epoch_us(sp.began)) / 1e6 > d.usual_seconds
               THEN has_sample_before(sp.channel_id, sp.began) ELSE false END
),
-- What of all that is within the time in which the channel was configured. A silence has a number. What has none and is
-- neither missing nor backfilled is a gap, which explains silences also if it is left out above.
clipped_gaps AS MATERIALIZED (
    SELECT p.channel_id, p.reason, p.backfilled, p.silence,
           greatest(p.from_time, c.from_time) AS from_time, least(p.to_time, c.to_time) AS to_time
    FROM (SELECT *, NULL AS silence FROM pieces
          UNION ALL
          SELECT *, NULL FROM not_yet_read
          UNION ALL
          SELECT g.channel_id, NULL, NULL, g.from_time, coalesce(g.to_time, 'infinity'), NULL
          FROM gaps_of(channels) AS g
          UNION ALL
          SELECT s.channel_id, NULL, NULL, s.from_time, s.to_time, row_number() OVER () FROM silences AS s) AS p
    JOIN configured AS c ON c.channel_id = p.channel_id AND c.from_time < p.to_time AND c.to_time > p.from_time
    WHERE greatest(p.from_time, c.from_time) < least(p.to_time, c.to_time)
),
reasons AS (
    SELECT p.channel_id, string_agg(DISTINCT p.reason, ', ' ORDER BY p.reason) AS reasons
    FROM clipped_gaps AS p
    WHERE p.reason IS NOT NULL
    GROUP BY p.channel_id
),
edges AS (
    SELECT e.channel_id, e.time, sum(e.missing) AS missing, sum(e.backfilled) AS backfilled, sum(e.silent) AS silent,
           sum(e.recorded) AS recorded, max(e.silence) AS silence
    FROM (SELECT p.channel_id, p.from_time AS time, (p.backfilled IS false)::INT AS missing,
                 (p.backfilled IS true)::INT AS backfilled, (p.silence IS NOT NULL)::INT AS silent,
                 (p.silence IS NULL)::INT AS recorded, p.silence
          FROM clipped_gaps AS p
          UNION ALL
          SELECT p.channel_id, p.to_time, -(p.backfilled IS false)::INT, -(p.backfilled IS true)::INT,
                 -(p.silence IS NOT NULL)::INT, -(p.silence IS NULL)::INT, NULL
          FROM clipped_gaps AS p) AS e
    GROUP BY e.channel_id, e.time
),
-- Overlapping gaps are merged, so that no second counts twice. Missing time takes precedence over backfilled time.
between_edges AS (
    SELECT e.channel_id, e.time, (epoch_us(lead(e.time) OVER in_order) - epoch_us(e.time)) / 1e6 AS seconds,
           sum(e.missing) OVER in_order > 0 AS missing, sum(e.backfilled) OVER in_order > 0 AS backfilled,
           sum(e.silent) OVER in_order > 0 AND sum(e.recorded) OVER in_order = 0 AS silent,
           last_value(e.silence IGNORE NULLS) OVER in_order AS silence
    FROM edges AS e
    WINDOW in_order AS (PARTITION BY e.channel_id ORDER BY e.time)
),
-- Stretches between edges that belong together have the number of others before them in common.
runs AS (
    SELECT b.*,
           count(*) FILTER (WHERE NOT b.missing) OVER (PARTITION BY b.channel_id ORDER BY b.time) AS gap,
           count(*) FILTER (WHERE NOT b.silent) OVER (PARTITION BY b.channel_id, b.silence ORDER BY b.time) AS rest
    FROM between_edges AS b
),
gaps AS (
    SELECT r.channel_id, count(*) AS gaps, sum(r.seconds) AS missing, max(r.seconds) AS longest
    FROM (SELECT r.channel_id, sum(r.seconds) AS seconds FROM runs AS r WHERE r.missing
          GROUP BY r.channel_id, r.gap) AS r
    GROUP BY r.channel_id
),
backfills AS (
    SELECT r.channel_id, sum(r.seconds) AS backfilled
    FROM runs AS r
    WHERE r.backfilled AND NOT r.missing
    GROUP BY r.channel_id
),
quarantined_counts AS (
    SELECT k.channel_id, sum(k.n) AS n FROM quarantined AS k GROUP BY k.channel_id HAVING sum(k.n) > 0
),
-- The part of a silence outside all gaps, backfilled or not. A remainder that is not long enough itself does not count.
unexplained AS (
    SELECT u.channel_id, count(*) AS n, sum(u.seconds) AS seconds
    FROM (SELECT r.channel_id, sum(r.seconds) AS seconds
          FROM runs AS r
          WHERE r.silent
          GROUP BY r.channel_id, r.silence, r.rest) AS u
    JOIN spans AS sp ON sp.channel_id = u.channel_id
    LEFT JOIN usual_pauses AS d ON d.channel_id = u.channel_id
    WHERE u.seconds >= coalesce(3 * sp.expected, d.usual_seconds, 0)
    GROUP BY u.channel_id
),
missing_samples AS (
    -- Polls are not exactly equidistant: there may be one more than is due.
    SELECT sp.channel_id,
           CASE WHEN sp.expected IS NULL THEN k.n
                ELSE greatest(0, round(sp.seconds / sp.expected) - coalesce(sp.samples, 0)) END::BIGINT AS missing
    FROM spans AS sp
    LEFT JOIN quarantined_counts AS k ON k.channel_id = sp.channel_id
)
SELECT sp.name AS channel,
       -- So many digits that only complete coverage is rounded to 100.
       CASE WHEN NOT sp.pushed OR d.channel_id IS NOT NULL OR g.missing >= sp.seconds
            THEN round(greatest(0, 100 * (1 - (coalesce(g.missing, 0) + coalesce(u.seconds, 0)) / sp.seconds)), 9)
            END AS covered_percent,
       coalesce(sp.samples, 0) AS samples, coalesce(sp.good, 0) AS good, coalesce(g.gaps, 0) AS gaps,
       coalesce(g.missing, 0.0) AS missing_seconds, coalesce(g.longest, 0.0) AS longest_seconds,
       coalesce(b.backfilled, 0.0) AS backfilled_seconds, coalesce(u.n, 0) AS unrecorded,
       coalesce(u.seconds, 0.0) AS unrecorded_seconds,
       concat_ws(', ', r.reasons, CASE WHEN p.channel_id IS NOT NULL THEN 'poll_stretched' END) AS reasons,
       coalesce(sp.samples, 0) + m.missing AS expected, m.missing, d.usual_seconds
FROM spans AS sp
LEFT JOIN usual_pauses AS d ON d.channel_id = sp.channel_id
JOIN missing_samples AS m ON m.channel_id = sp.channel_id
LEFT JOIN stretched AS p ON p.channel_id = sp.channel_id
LEFT JOIN reasons AS r ON r.channel_id = sp.channel_id
LEFT JOIN gaps AS g ON g.channel_id = sp.channel_id
LEFT JOIN backfills AS b ON b.channel_id = sp.channel_id
LEFT JOIN unexplained AS u ON u.channel_id = sp.channel_id
WHERE complete OR r.channel_id IS NOT NULL OR u.channel_id IS NOT NULL OR p.channel_id IS NOT NULL
   OR sp.good < sp.samples;

SELECT *
FROM portion_rows
ORDER BY covered_percent, channel;
