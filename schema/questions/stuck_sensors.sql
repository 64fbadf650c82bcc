-- stuck_sensors: which sensors kept one value for much longer than usual
--
-- Works for channels that repeat equal values and for collected ones that report only changes, where a stuck sensor is
-- silent. A pushed or imported one that is silent for longer than usual may have had any value meanwhile: it is not
-- listed, a line below the answer names it, and gaps_and_coverage says when it was silent.
-- Much longer is longer than a value is kept by chance: the limit is set by the longest ones in the reference, but for
-- its lowest and highest value and what gaps or Bad samples cut, among them those of a machine that runs at one speed
-- for a long time. times_limit says how long it was, in limits, never negative: 1 is the limit.
-- At the lowest and the highest value of the reference a channel may be at rest, as a flow that is 0 while its valve is
-- shut, or a building at night: where the reference has such a rest, which is longer than other values are kept, it is
-- usual for any time. Nor is a value beyond what the reference had listed, where two other channels of the unit came
-- beyond what theirs had, or to rest, within hold of it: the unit stopped.
-- Not listed: channels with fewer than 40 changes in the reference, those that hold their values but for ramps (such as
-- set points), silence in a recorded gap, and Bad samples: they end a value, also where the next good one is the same.
-- A channel whose source timestamp repeats is listed with a note: its value since then is unknown.
-- Where the reference has no samples, or few, a line below the answer says so: then a channel that kept no value for
-- as long as hold is not stuck, but no more is known.
--
-- moving_beside counts the other channels of the unit that changed meanwhile.
--
-- Parameters
--   since         timestamptz  from this moment on
--   until         timestamptz  before this moment
--   channels      text[]       names or patterns [NULL: all analog ones]
--   hold          interval     minimum time at one value [NULL: 10 sampling intervals]
--   reference     reference    FROM..TO, or a time before [NULL: 1 h, 300 sampling intervals, the interval up to 1 d]
--   false_alarms  interval     mean time between false alarms of all channels together [NULL: 20 times the interval]
-- Legal: hold 0 s..100 years, false_alarms 1 us..100 years
-- Reads from: reference
-- Portions: unit
-- Cost: one pass over the channels' samples from the reference to until, sorted by time: 1 s per million samples.
-- Example: plantlog ask stuck_sensors --from 2026-03-09T10:00Z --to 2026-03-09T18:00Z
WITH
selected AS (
    SELECT c.channel_id, c.name, c.unit, c.low, c.high, c.unit_path, c.pushed, least(until, now(), c.ends) AS ends
    FROM channels_like(channels) AS c
    WHERE c.kind = 'analog'
),
-- Values that were held for long, and the first and the last one of each channel.
runs AS MATERIALIZED (
    SELECT r.channel_id, r.value, r.from_time, r.next_time
    FROM runs_of(channel_ids(channels), least(reference[1], since), until, hold) AS r
),
long_runs AS MATERIALIZED (
    SELECT r.channel_id, r.value, r.from_time, coalesce(r.next_time, sel.ends) AS to_time
    FROM runs AS r
    JOIN selected AS sel ON sel.channel_id = r.channel_id
    WHERE isfinite(r.value) AND coalesce(r.next_time, sel.ends) > since
      AND coalesce(r.next_time, sel.ends) - r.from_time >= hold
      AND NOT EXISTS (FROM gaps_of(channels) AS g
                      WHERE g.channel_id = r.channel_id AND g.backfilled_at IS NULL
                        AND g.from_time < coalesce(r.next_time, sel.ends)
                        AND coalesce(g.to_time, 'infinity') > r.from_time)
),
-- Seconds of the reference in which channels have no value: before their first sample, and in gaps.
first_samples AS (
    SELECT r.channel_id, min(r.from_time) AS time FROM runs AS r WHERE isfinite(r.value) GROUP BY r.channel_id
),
gap_parts AS (
    SELECT f.channel_id, least(coalesce(g.to_time, 'infinity'), reference[2]) AS ends,
           greatest(g.from_time, f.time, reference[1],
                    max(coalesce(g.to_time, 'infinity')) OVER (PARTITION BY g.channel_id ORDER BY g.from_time
                                                               ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING))
               AS begins
    FROM first_samples AS f
    JOIN chart_gaps(channels, reference[1], reference[2]) AS g ON g.channel_id = f.channel_id AND NOT g.backfilled
),
missing AS (
    SELECT f.channel_id, f.time >= reference[2] AND reference[1] < since AS whole,
           epoch(greatest(f.time - reference[1], INTERVAL '0 s')) + coalesce(g.seconds, 0) AS seconds
    FROM first_samples AS f
    LEFT JOIN (SELECT p.channel_id, sum(greatest(epoch(p.ends - p.begins), 0)) AS seconds
               FROM gap_parts AS p
               GROUP BY p.channel_id) AS g ON g.channel_id = f.channel_id
),
-- Few sensors were held for long. Only of these it matters what is usual.
limits AS MATERIALIZED (
    SELECT unnest(longest_runs(l.channels, epoch_us(reference[1]), epoch_us(reference[2]),
                               epoch_us(hold), epoch_us(false_alarms)::DOUBLE), recursive := true)
    FROM (SELECT list(g.fields) AS channels
          FROM channels_with_gaps(channels, reference[1], reference[2]) AS g
          SEMI JOIN long_runs AS l ON l.channel_id = g.channel_id
          HAVING count(*) > 0) AS l
),
longer_runs AS MATERIALIZED (
    SELECT l.*, epoch(l.to_time - l.from_time) / h.seconds AS times,
           l.value < h.lowest OR l.value > h.highest AS beyond,
           (h.rests_low AND l.value <= h.lowest) OR (h.rests_high AND l.value >= h.highest) AS rests
    FROM long_runs AS l
    JOIN limits AS h ON h.channel_id = l.channel_id
    WHERE epoch(l.to_time - l.from_time) > h.seconds
),
-- A unit has stopped if several of its channels come to rest at once: one of them alone may have failed.
stopped_units AS MATERIALIZED (
    SELECT l.channel_id, l.from_time
    FROM longer_runs AS l
    JOIN selected AS sel ON sel.channel_id = l.channel_id
    JOIN selected AS o ON o.unit_path = sel.unit_path AND o.channel_id <> sel.channel_id
    JOIN longer_runs AS r ON r.channel_id = o.channel_id AND (r.beyond OR r.rests)
                         AND abs(epoch_us(r.from_time - l.from_time)) <= epoch_us(hold)
    WHERE l.beyond
    GROUP BY l.channel_id, l.from_time
    HAVING count(DISTINCT r.channel_id) >= 2
),
unusual_runs AS MATERIALIZED (
    SELECT l.*
    FROM longer_runs AS l
    ANTI JOIN stopped_units AS u ON u.channel_id = l.channel_id AND u.from_time = l.from_time
    WHERE NOT l.rests
),
-- A pushed channel that was silent for longer than usual may have had any value meanwhile.
pushed AS (
    SELECT unnest(pauses(l.channels, epoch_us(least(reference[1], since)), epoch_us(until)), recursive := true)
    FROM (SELECT list(DISTINCT l.channel_id) AS channels
          FROM unusual_runs AS l
          JOIN selected AS sel ON sel.channel_id = l.channel_id AND sel.pushed
          HAVING count(*) > 0) AS l
),
silences AS MATERIALIZED (
    SELECT p.channel_id, p.from_time, least(p.to_time, sel.ends) AS to_time
    FROM pushed AS p
    JOIN selected AS sel ON sel.channel_id = p.channel_id
    WHERE seconds_between(p.from_time, least(p.to_time, sel.ends)) > p.usual_seconds
),
repeated_timestamps AS (
    SELECT t.channel_id, t.value, t.from_time, least(t.to_time, sel.ends) AS to_time,
           'its time stands still at ' || strftime(t.at, '%Y-%m-%d %H:%M:%S UTC') || ': '
           || t.refused || ' or more values were not kept' AS note
    FROM frozen_timestamps(since, until) AS t
    JOIN selected AS sel ON sel.channel_id = t.channel_id
    WHERE least(t.to_time, sel.ends) - t.from_time >= hold AND least(t.to_time, sel.ends) > since
),
stuck AS (
    SELECT l.channel_id, l.value, l.from_time, l.to_time, l.times, NULL AS note
    FROM unusual_runs AS l
    WHERE NOT EXISTS (FROM silences AS s
                      WHERE s.channel_id = l.channel_id AND s.from_time < l.to_time AND s.to_time > l.from_time)
      AND NOT EXISTS (FROM repeated_timestamps AS t
                      WHERE t.channel_id = l.channel_id AND t.from_time < l.to_time AND t.to_time > l.from_time)
    UNION ALL
    SELECT t.channel_id, t.value, t.from_time, t.to_time, NULL, t.note FROM repeated_timestamps AS t
),
-- Other sensors in the same unit of the plant that continued to change: the unit as a whole was not at rest.
neighbours AS MATERIALIZED ( -- few; otherwise all samples may be joined with all other sensors of their unit first
    SELECT s.channel_id, s.from_time, s.to_time, o.channel_id AS other
    FROM stuck AS s
    JOIN selected AS sel ON sel.channel_id = s.channel_id
    JOIN selected AS o ON o.unit_path = sel.unit_path AND o.channel_id <> sel.channel_id
),
-- Another sensor has not changed if one value was held all the time.
moving_neighbours AS (
    SELECT o.channel_id, o.from_time, count(*) AS moving
    FROM neighbours AS o
    JOIN first_samples AS f ON f.channel_id = o.other
    WHERE f.time < o.to_time
      AND NOT EXISTS (FROM runs AS r
                      WHERE r.channel_id = o.other AND r.from_time <= o.from_time
                        AND coalesce(r.next_time, 'infinity') >= o.to_time)
    GROUP BY o.channel_id, o.from_time
)
SELECT sel.name AS channel, s.from_time AS stuck_from, s.to_time AS stuck_to, s.value,
       unit_at(s.channel_id, s.from_time, patterns := channels) AS unit, s.times AS times_limit,
       coalesce(s.value <= sel.low OR s.value >= sel.high, false) AS at_range_limit,
       coalesce(b.moving, 0) AS moving_beside, s.note, NULL AS verdict
FROM stuck AS s
JOIN selected AS sel ON sel.channel_id = s.channel_id
LEFT JOIN moving_neighbours AS b ON b.channel_id = s.channel_id AND b.from_time = s.from_time
UNION ALL
-- Who was not held for long is not stuck, whatever the reference says.
SELECT c.name, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
       CASE WHEN c.kind <> 'analog' THEN 'not judged, not analog'
            WHEN r.channel_id IS NULL THEN verdict_text(NULL)
            WHEN l.channel_id IS NOT NULL AND h.channel_id IS NULL
            THEN 'not judged, fewer than 40 changes in the reference, or values held but for ramps'
            WHEN EXISTS (FROM silences AS s
                         JOIN unusual_runs AS u ON u.channel_id = s.channel_id AND s.from_time < u.to_time
                                               AND s.to_time > u.from_time
                         WHERE s.channel_id = c.channel_id)
            THEN 'judged but for a silence that is longer than usual: gaps_and_coverage says when'
            WHEN r.whole THEN 'judged by hold alone, as their reference has no samples'
            ELSE verdict_text(CASE WHEN 2 * r.seconds > epoch(reference[2] - reference[1]) THEN 5 ELSE 1 END) END
FROM channels_like(channels) AS c
LEFT JOIN missing AS r ON r.channel_id = c.channel_id
LEFT JOIN (SELECT DISTINCT l.channel_id FROM long_runs AS l) AS l ON l.channel_id = c.channel_id
LEFT JOIN limits AS h ON h.channel_id = c.channel_id;

SELECT * EXCLUDE (verdict)
FROM portion_rows
WHERE verdict IS NULL
ORDER BY at_range_limit, times_limit DESC, channel, stuck_from;
