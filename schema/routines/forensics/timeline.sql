-- timeline: what happened around a point in time, in chronological order
--
-- Events, gaps that begin or end, changes of state and quality, changes of values that are usually constant, jumps much
-- larger than the channel's usual step, and counters that run backwards ("reset"). More than "busy" texts or conflicts of a channel are one line.
--
-- Parameters
--   since     timestamptz  from this moment on
--   until     timestamptz  before this moment
--   channels  text[]       names or patterns [all]
--   instant   timestamptz  reference of the column "seconds" [the middle]
--   jump      float8       a jump is at least this many times the 90th percentile of the channel's steps [10]
--   busy      int          leave out states that change more often than this, including lookback [20]
--   lookback  interval     time before since from which usual steps are learned [15 min]
-- Reads from: since - lookback
-- Cost: one pass over the channels' samples from since - lookback to until, sorted by time: 3 s per million samples.
-- Example: SELECT * FROM plant.timeline('2026-03-09 10:00+00', '2026-03-09 10:10+00', '{tankfarm/*}');
CREATE OR REPLACE FUNCTION plant.timeline(
    since timestamptz, until timestamptz, channels text[] DEFAULT NULL, instant timestamptz DEFAULT NULL,
    jump float8 DEFAULT 10, busy int DEFAULT 20, lookback interval DEFAULT '15 min'
)
RETURNS TABLE ("time" timestamptz, seconds float8, what text, channel text, detail text)
LANGUAGE sql STABLE
AS $$
WITH
wanted AS (
    SELECT c.channel_id, c.name, c.kind, c.unit FROM plant.channels_like(channels) AS c
),
-- Events and gaps of a whole source are included if one of the channels belongs to it.
sources AS (
    SELECT DISTINCT c.source_id FROM wanted AS w JOIN plant.channel AS c ON c.id = w.channel_id
),
matching AS (
    SELECT e.time, e.type AS what, coalesce(w.name, s.name, '') AS channel,
           concat_ws(': ', nullif(e.text, ''), plant.detail_text(e.detail)) AS detail,
           count(*) FILTER (WHERE e.type IN ('text', 'conflict')) OVER (PARTITION BY e.channel_id, e.type) > busy
           AND w.channel_id IS NOT NULL AS many
    FROM plant.event AS e
    LEFT JOIN wanted AS w ON w.channel_id = e.channel_id
    LEFT JOIN plant.source AS s ON s.id = e.source_id
    WHERE e.time >= since AND e.time < until AND e.type <> 'counter_reset' -- the samples tell these
      AND (w.channel_id IS NOT NULL OR e.channel_id IS NULL)
      AND (w.channel_id IS NOT NULL OR e.source_id IS NULL OR e.source_id IN (SELECT o.source_id FROM sources AS o))
),
events AS (
    SELECT s.time, s.what, s.channel, s.detail FROM matching AS s WHERE NOT s.many
    UNION ALL
    SELECT min(s.time), s.what, s.channel,
           format('%s until %s UTC, the first: %s, the last: %s', count(*),
                  to_char(max(s.time) AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS'), public.first(s.detail, s.time),
                  public.last(s.detail, s.time))
    FROM matching AS s
    WHERE s.many
    GROUP BY s.what, s.channel
),
-- A gap of a whole source is one line, not one for each of its channels.
gaps AS (
    SELECT t.time, t.what, coalesce(c.name, s.name) AS channel,
           concat_ws(': ', g.reason, nullif(g.detail, '')) AS detail
    FROM plant.gap AS g
    JOIN plant.source AS s ON s.id = g.source_id
    LEFT JOIN wanted AS c ON c.channel_id = g.channel_id
    CROSS JOIN LATERAL (VALUES (g.from_time, 'gap begins'), (g.to_time, 'gap ends')) AS t (time, what)
    WHERE t.time >= since AND t.time < until AND g.to_time IS DISTINCT FROM g.from_time
      AND (c.channel_id IS NOT NULL
           OR (g.channel_id IS NULL AND g.source_id IN (SELECT o.source_id FROM sources AS o)))
),
readings AS (
    SELECT w.channel_id, s.time, s.value, s.status,
           lag(s.value) OVER per_channel AS old_value, lag(s.status) OVER per_channel AS old_status
    FROM wanted AS w
    CROSS JOIN LATERAL plant.samples_between(ARRAY[w.channel_id], since - lookback, until) AS s
    WINDOW per_channel AS (PARTITION BY w.channel_id ORDER BY s.time)
),
qualities AS (
    SELECT r.channel_id, r.time, 'quality' AS what,
           plant.quality(r.old_status) || ' → ' || plant.quality(r.status) || ' '
           || plant.status_hex(r.status) AS detail
    FROM readings AS r
    WHERE plant.quality(r.status) <> plant.quality(r.old_status)
),
steps AS (
    SELECT r.channel_id, r.time, r.old_value, r.value, abs(r.value - r.old_value) AS size,
           abs(lag(r.value - r.old_value) OVER (PARTITION BY r.channel_id ORDER BY r.time)) AS size_before
    FROM readings AS r
    WHERE r.status >= 0 AND r.old_status >= 0 AND r.value <> r.old_value
      AND abs(r.value) < 1e50 AND abs(r.old_value) < 1e50 -- else the difference may overflow
),
habits AS (
    SELECT s.channel_id, count(*) AS changes, percentile_cont(0.9) WITHIN GROUP (ORDER BY s.size) AS usual
    FROM steps AS s
    GROUP BY s.channel_id
),
moves AS (
    SELECT s.channel_id, s.time,
           CASE WHEN w.kind = 'discrete' THEN 'state' WHEN h.changes <= 3 THEN 'held value' ELSE 'jump' END AS what,
           round(s.old_value::numeric, 3)::float8 || ' → ' || round(s.value::numeric, 3)::float8 || ' '
           || plant.unit_at(s.channel_id, s.time)
               AS detail
    FROM steps AS s
    JOIN habits AS h ON h.channel_id = s.channel_id
    JOIN wanted AS w ON w.channel_id = s.channel_id
    WHERE (w.kind = 'discrete' AND h.changes <= busy)
       OR (w.kind = 'analog' AND (h.changes <= 3
                                  -- Only the first step of a jump is listed.
                                  OR (s.size > jump * h.usual AND s.size_before <= jump * h.usual)))
    UNION ALL
    SELECT d.channel_id, d.time, 'reset',
           round(d.old_value::numeric, 3)::float8 || ' → ' || round(d.value::numeric, 3)::float8 || ' '
           || plant.unit_at(d.channel_id, d.time)
    FROM plant.counter_decreases(channels, since - lookback, until) AS d
),
lines AS (
    SELECT e.time, e.what, e.channel, e.detail FROM events AS e
    UNION ALL
    SELECT g.time, g.what, g.channel, g.detail FROM gaps AS g
    UNION ALL
    SELECT m.time, m.what, w.name, m.detail
    FROM (SELECT * FROM qualities UNION ALL SELECT * FROM moves) AS m
    JOIN wanted AS w ON w.channel_id = m.channel_id
)
SELECT l.time, extract(epoch FROM l.time - coalesce(instant, since + (until - since) / 2))::float8, l.what, l.channel,
       l.detail
FROM lines AS l
WHERE l.time >= since
ORDER BY l.time, l.channel, l.what, l.detail
$$;
