-- gaps_and_coverage: coverage and gaps of each channel, and silent intervals without a recorded gap
--
-- Parameters
--   since     timestamptz  from this moment on
--   until     timestamptz  before this moment (never later than now)
--   channels  text[]       names or patterns [NULL: all]
--   complete  boolean      also list channels that are complete, or of which that is not known [false]
--   lookback  interval     time before since that tells the usual distance of a channel with few samples [1 day]
-- Legal: lookback 0 s..100 years
--
-- covered_percent is the share of time without gaps, quarantined samples and unrecorded silence. expected is the
-- number of samples of a polled channel: stored plus missing. A device that is slower than its interval covers the
-- time but misses samples; its regular gaps are left out, as in chart_gaps, and the reason is poll_stretched.
-- not_yet_read is the time from a channel's configuration to its first value or gap, or until now, also before the
-- first start of its collector. time_stands_still is the time from the first value with a repeated timestamp, which is
-- not stored, to the next sample. A pushed or imported channel has no interval, but its own usual distance of samples:
-- a silence longer than usual_seconds, which is five times what 90 % of its distances do not exceed, is unrecorded. It
-- takes 20 distances in the interval, or with the time of lookback before it. If there are fewer, covered_percent is
-- NULL: nobody knows.
-- longest_from and longest_to are those of the longest gap or unrecorded silence, the earliest of several, and
-- longest_seconds its length.
-- Shown first: channel, covered_percent, missing_seconds, unrecorded_seconds, longest_from, reasons
-- Without rows: nothing is missing in {channels}; --complete true lists them
-- Portions: channel
-- Cost: one pass over the channels' samples of the interval: 2 s per million samples.
-- Example: plantlog ask gaps_and_coverage --from 2026-03-09T00:00Z --to 2026-03-10T00:00Z
WITH
-- DuckDB has no multiranges. A set of intervals is a table with from_time and to_time; where sets are united or
-- subtracted, their edges are put in order, and between two edges it is known what applies.
-- 1. Channels and their samples, in intervals that are parted where there may be a silence.
selected AS (
    SELECT c.channel_id, c.name, c.expected, c.source_id, c.configured_at, c.source_kind = 'push' AS pushed,
           least(until, now(), c.ends) AS ends
    FROM described_channel AS c
    WHERE c.kind <> 'text' AND (channels IS NULL OR c.channel_id IN channel_ids(channels))
),
sampled AS MATERIALIZED (
    SELECT i.channel_id, i.samples, i.not_bad, i.first_time, i.last_time
    FROM intervals_of(channels, since, until, to_microseconds(floor(3e6 * shortest_interval(channels))::BIGINT)) AS i
),
counts AS MATERIALIZED (
    SELECT s.channel_id, sum(s.samples)::BIGINT AS samples, sum(s.not_bad)::BIGINT AS good,
           min(s.first_time) AS first_time, max(s.last_time) AS last_time
    FROM sampled AS s
    GROUP BY s.channel_id
),

-- 2. The time in which samples are expected: from the configuration of a channel, or from its first sample if that is
-- earlier, but not while it is retired. Retirements do not overlap: each ends what was configured before it.
begun AS (
    SELECT sel.*, c.samples, c.good, c.first_time, c.last_time,
           CASE WHEN sel.configured_at IS NULL THEN since
                ELSE greatest(since, least(sel.configured_at, c.first_time)) END AS began
    FROM selected AS sel
    LEFT JOIN counts AS c ON c.channel_id = sel.channel_id
),
configured_again AS (
    SELECT b.channel_id, NULL::TIMESTAMPTZ AS retired_at, b.began AS from_time, b.ends FROM begun AS b
    UNION ALL
    SELECT r.channel_id, r.from_time, r.to_time, b.ends
    FROM retirement AS r
    JOIN begun AS b ON b.channel_id = r.channel_id AND r.from_time < b.ends AND r.to_time > b.began
),
configured AS MATERIALIZED (
    SELECT a.channel_id, a.from_time,
           lead(a.retired_at, 1, a.ends) OVER (PARTITION BY a.channel_id ORDER BY a.from_time) AS to_time
    FROM configured_again AS a
    QUALIFY a.from_time < to_time
),
spans AS MATERIALIZED (
    SELECT b.*, c.seconds
    FROM begun AS b
    JOIN (SELECT c.channel_id, sum(seconds_between(c.from_time, c.to_time)) AS seconds
          FROM configured AS c
          GROUP BY c.channel_id) AS c ON c.channel_id = b.channel_id
),

-- 3. Gaps with their reasons.
quarantined AS MATERIALIZED (
    SELECT * FROM quarantined_intervals(channels, since, until)
),
recorded_gaps AS MATERIALIZED (
    SELECT g.channel_id, g.reason, g.backfilled,
           greatest(g.from_time, since) AS from_time, least(coalesce(g.to_time, now()), until) AS to_time
    FROM chart_gaps(channels, since, least(until, now())) AS g
    UNION ALL
    SELECT q.channel_id, 'quarantined', false, q.from_time, q.to_time
    FROM quarantined AS q
    WHERE q.from_time < q.to_time
    UNION ALL
    SELECT t.channel_id, 'time_stands_still', false, greatest(t.from_time, since), least(t.to_time, now(), until)
    FROM frozen_timestamps(since, until) AS t
    WHERE greatest(t.from_time, since) < least(t.to_time, now(), until)
),
first_known AS (
    SELECT sp.channel_id, sp.expected, sp.began, least(sp.first_time, min(g.from_time), sp.ends) AS first_time
    FROM spans AS sp
    LEFT JOIN recorded_gaps AS g ON g.channel_id = sp.channel_id AND g.to_time > sp.began
    WHERE sp.configured_at IS NOT NULL AND NOT sp.pushed
    GROUP BY sp.channel_id, sp.expected, sp.began, sp.first_time, sp.ends
),
not_yet_read AS (
    SELECT f.channel_id, 'not_yet_read' AS reason, false AS backfilled, f.began AS from_time, f.first_time AS to_time
    FROM first_known AS f
    -- A sample from before the configuration has a source timestamp: the channel was read at once.
    WHERE CASE WHEN f.began < f.first_time AND seconds_between(f.began, f.first_time) >= coalesce(f.expected, 0)
               THEN NOT has_sample_before(f.channel_id, f.began) ELSE false END
),

-- 4. Silences of polled channels: at least three intervals, or three of those at which a slow device was polled.
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
before_samples AS (
    SELECT s.channel_id, s.first_time AS to_time,
           coalesce(max(s.last_time) OVER (PARTITION BY s.channel_id ORDER BY s.first_time
                                           ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), since) AS from_time
    FROM sampled AS s
),
silences_before_samples AS (
    SELECT b.channel_id, greatest(b.from_time, sp.began) AS from_time, b.to_time
    FROM before_samples AS b
    JOIN spans AS sp ON sp.channel_id = b.channel_id
    WHERE seconds_between(greatest(b.from_time, sp.began), b.to_time) >= 3 * sp.expected
      AND NOT EXISTS (FROM paces AS p
                      WHERE p.source_id = sp.source_id AND p.seconds = sp.expected
                        AND p.from_time <= b.to_time + (b.to_time - b.from_time) AND p.to_time >= b.from_time
                        AND seconds_between(b.from_time, b.to_time) < 3 * p.pace)
),
silences_to_the_end AS (
    SELECT sp.channel_id, sp.last_time AS from_time, sp.ends AS to_time
    FROM spans AS sp
    WHERE seconds_between(sp.last_time, sp.ends)
          >= 3 * greatest(sp.expected, (SELECT max(p.pace) FROM paces AS p
                                       WHERE p.source_id = sp.source_id AND p.seconds = sp.expected
                                         AND p.to_time > sp.last_time))
),
silent_throughout AS (
    SELECT sp.channel_id, sp.began AS from_time, sp.ends AS to_time
    FROM spans AS sp
    WHERE CASE WHEN sp.samples IS NOT NULL THEN false
               WHEN sp.expected IS NOT NULL THEN true
               WHEN sp.pushed THEN false
               -- If a channel reports changes, its last sample holds, if there is one.
               ELSE NOT has_sample_before(sp.channel_id, sp.began) END
),

-- 5. Silences of pushed channels: pauses that are longer than usual.
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
long_pauses AS (
    SELECT p.channel_id, greatest(p.from_time, sp.began) AS from_time, least(p.to_time, sp.ends) AS to_time
    FROM (SELECT * FROM dense_pauses UNION ALL SELECT * FROM sparse_pauses) AS p
    JOIN spans AS sp ON sp.channel_id = p.channel_id
    WHERE seconds_between(greatest(p.from_time, sp.began), least(p.to_time, sp.ends)) > p.usual_seconds
),
long_first_pauses AS (
    SELECT sp.channel_id, sp.began AS from_time, sp.first_time AS to_time
    FROM spans AS sp
    JOIN (SELECT DISTINCT d.channel_id, d.usual_seconds FROM dense_pauses AS d) AS d ON d.channel_id = sp.channel_id
    WHERE CASE WHEN seconds_between(sp.began, sp.first_time) > d.usual_seconds
               THEN has_sample_before(sp.channel_id, sp.began) ELSE false END
),

-- 6. All of that within the time in which the channel was configured. A gap is missing or backfilled time; one that is
-- left out above has neither a reason nor is it backfilled or not, and explains silences all the same. A silence has a
-- number.
silences AS (
    SELECT s.*, row_number() OVER () AS silence
    FROM (FROM silences_before_samples UNION ALL FROM silences_to_the_end UNION ALL FROM silent_throughout
          UNION ALL FROM long_pauses UNION ALL FROM long_first_pauses) AS s
),
intervals AS (
    SELECT i.channel_id, i.from_time, i.to_time, i.reason, i.backfilled, NULL AS silence
    FROM (FROM recorded_gaps UNION ALL FROM not_yet_read) AS i
    UNION ALL
    SELECT g.channel_id, g.from_time, coalesce(g.to_time, 'infinity'), NULL, NULL, NULL FROM gaps_of(channels) AS g
    UNION ALL
    SELECT s.channel_id, s.from_time, s.to_time, NULL, NULL, s.silence FROM silences AS s
),
clipped AS MATERIALIZED (
    SELECT i.channel_id, i.reason, i.backfilled, i.silence,
           greatest(i.from_time, c.from_time) AS from_time, least(i.to_time, c.to_time) AS to_time
    FROM intervals AS i
    JOIN configured AS c ON c.channel_id = i.channel_id AND c.from_time < i.to_time AND c.to_time > i.from_time
    WHERE greatest(i.from_time, c.from_time) < least(i.to_time, c.to_time)
),
reasons AS (
    SELECT c.channel_id, string_agg(DISTINCT c.reason, ', ' ORDER BY c.reason) AS reasons
    FROM clipped AS c
    WHERE c.reason IS NOT NULL
    GROUP BY c.channel_id
),

-- 7. What applies between two edges, at which intervals of each sort begin (1) or end (-1). No second counts twice:
-- missing time takes precedence over backfilled time, and any gap over a silence.
edges AS (
    SELECT e.channel_id, e.time, max(e.silence) FILTER (WHERE e.step = 1) AS silence,
           sum(e.step * (e.backfilled IS false)::INT) AS missing,
           sum(e.step * (e.backfilled IS true)::INT) AS backfilled,
           sum(e.step * (e.silence IS NOT NULL)::INT) AS silent,
           sum(e.step * (e.silence IS NULL)::INT) AS recorded
    FROM (SELECT c.*, unnest([c.from_time, c.to_time]) AS time, unnest([1, -1]) AS step FROM clipped AS c) AS e
    GROUP BY e.channel_id, e.time
),
between_edges AS (
    SELECT e.channel_id, e.time, lead(e.time) OVER in_order AS ends,
           seconds_between(e.time, lead(e.time) OVER in_order) AS seconds,
           sum(e.missing) OVER in_order > 0 AS missing, sum(e.backfilled) OVER in_order > 0 AS backfilled,
           sum(e.silent) OVER in_order > 0 AND sum(e.recorded) OVER in_order = 0 AS silent,
           last_value(e.silence IGNORE NULLS) OVER in_order AS silence
    FROM edges AS e
    WINDOW in_order AS (PARTITION BY e.channel_id ORDER BY e.time)
),
-- Neighbours of a run have the same number of other rows before them.
runs AS (
    SELECT b.*,
           count(*) FILTER (WHERE NOT b.missing) OVER (PARTITION BY b.channel_id ORDER BY b.time) AS gap,
           count(*) FILTER (WHERE NOT b.silent) OVER (PARTITION BY b.channel_id, b.silence ORDER BY b.time) AS rest
    FROM between_edges AS b
),
missing_runs AS MATERIALIZED (
    SELECT r.channel_id, sum(r.seconds) AS seconds, min(r.time) AS from_time, max(r.ends) AS to_time
    FROM runs AS r
    WHERE r.missing
    GROUP BY r.channel_id, r.gap
),
gaps AS (
    SELECT r.channel_id, count(*) AS gaps, sum(r.seconds) AS missing FROM missing_runs AS r GROUP BY r.channel_id
),
backfills AS (
    SELECT r.channel_id, sum(r.seconds) AS backfilled
    FROM runs AS r
    WHERE r.backfilled AND NOT r.missing
    GROUP BY r.channel_id
),
-- The part of a silence outside all gaps, backfilled or not. A remainder that is not long enough itself does not count.
silent_runs AS MATERIALIZED (
    SELECT r.*
    FROM (SELECT r.channel_id, sum(r.seconds) AS seconds, min(r.time) AS from_time, max(r.ends) AS to_time
          FROM runs AS r
          WHERE r.silent
          GROUP BY r.channel_id, r.silence, r.rest) AS r
    JOIN spans AS sp ON sp.channel_id = r.channel_id
    LEFT JOIN usual_pauses AS d ON d.channel_id = r.channel_id
    WHERE r.seconds >= coalesce(3 * sp.expected, d.usual_seconds, 0)
),
unrecorded AS (
    SELECT r.channel_id, count(*) AS n, sum(r.seconds) AS seconds FROM silent_runs AS r GROUP BY r.channel_id
),
longest AS (
    SELECT r.channel_id, max(r.seconds) AS seconds,
           first(r.from_time ORDER BY r.seconds DESC, r.from_time) AS from_time,
           first(r.to_time ORDER BY r.seconds DESC, r.from_time) AS to_time
    FROM (FROM missing_runs UNION ALL FROM silent_runs) AS r
    GROUP BY r.channel_id
),

-- 8. The columns.
quarantined_counts AS (
    SELECT q.channel_id, sum(q.n) AS n FROM quarantined AS q GROUP BY q.channel_id HAVING sum(q.n) > 0
),
missing_samples AS (
    -- Polls are not exactly equidistant: there may be one more than is due.
    SELECT sp.channel_id,
           CASE WHEN sp.expected IS NULL THEN q.n
                ELSE greatest(0, round(sp.seconds / sp.expected) - coalesce(sp.samples, 0)) END::BIGINT AS missing
    FROM spans AS sp
    LEFT JOIN quarantined_counts AS q ON q.channel_id = sp.channel_id
)
SELECT sp.name AS channel,
       -- So many digits that only complete coverage is rounded to 100.
       CASE WHEN NOT sp.pushed OR d.channel_id IS NOT NULL OR g.missing >= sp.seconds
            THEN round(greatest(0, 100 * (1 - (coalesce(g.missing, 0) + coalesce(u.seconds, 0)) / sp.seconds)), 9)
            END AS covered_percent,
       coalesce(sp.samples, 0) AS samples, coalesce(sp.good, 0) AS good, coalesce(g.gaps, 0) AS gaps,
       coalesce(g.missing, 0.0) AS missing_seconds, coalesce(l.seconds, 0.0) AS longest_seconds,
       l.from_time AS longest_from, l.to_time AS longest_to,
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
LEFT JOIN longest AS l ON l.channel_id = sp.channel_id
LEFT JOIN unrecorded AS u ON u.channel_id = sp.channel_id
WHERE complete OR r.channel_id IS NOT NULL OR u.channel_id IS NOT NULL OR p.channel_id IS NOT NULL
   OR sp.good < sp.samples;

SELECT *
FROM portion_rows
ORDER BY covered_percent, channel;
