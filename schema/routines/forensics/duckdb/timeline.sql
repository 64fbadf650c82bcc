-- timeline for DuckDB: as ../timeline.sql, which has the parameters
--
-- Portions: channel
CREATE MACRO timeline_of(since, until, channels, instant, jump, busy, lookback) AS TABLE
WITH
wanted AS (
    SELECT c.channel_id, c.name, c.kind, c.unit FROM channels_like(channels) AS c
),
-- Events and gaps of a whole source are included if one of the channels belongs to it.
sources AS (
    SELECT DISTINCT c.source_id FROM wanted AS w JOIN channel AS c ON c.id = w.channel_id
),
matching AS (
    SELECT e.time, e.id, e.type AS what, coalesce(w.name, s.name, '') AS channel,
           concat_ws(': ', nullif(e.text, ''), detail_text(e.detail)) AS detail,
           count(*) FILTER (WHERE e.type IN ('text', 'conflict')) OVER (PARTITION BY e.channel_id, e.type) > busy
           AND w.channel_id IS NOT NULL AS many
    FROM event AS e
    LEFT JOIN wanted AS w ON w.channel_id = e.channel_id
    LEFT JOIN source AS s ON s.id = e.source_id
    WHERE e.time >= since AND e.time < until
      AND (w.channel_id IS NOT NULL OR e.channel_id IS NULL)
      AND (w.channel_id IS NOT NULL OR e.source_id IS NULL OR e.source_id IN (SELECT o.source_id FROM sources AS o))
),
events AS (
    SELECT s.time, s.id, s.what, s.channel, s.detail FROM matching AS s WHERE NOT s.many
    UNION ALL
    SELECT min(s.time), NULL, s.what, s.channel,
           format('{} until {} UTC, the first: {}, the last: {}', count(*),
                  strftime(max(s.time) AT TIME ZONE 'UTC', '%Y-%m-%d %H:%M:%S'), arg_min(s.detail, s.time),
                  arg_max(s.detail, s.time))
    FROM matching AS s
    WHERE s.many
    GROUP BY s.what, s.channel
),
-- A gap of a whole source is one line, not one for each of its channels.
gaps AS (
    SELECT t.time, g.id, t.what, coalesce(c.name, s.name) AS channel,
           concat_ws(': ', g.reason, nullif(g.detail, '')) AS detail
    FROM gap AS g
    JOIN source AS s ON s.id = g.source_id
    LEFT JOIN wanted AS c ON c.channel_id = g.channel_id
    CROSS JOIN LATERAL (VALUES (g.from_time, 'gap begins'), (g.to_time, 'gap ends')) AS t (time, what)
    WHERE t.time >= since AND t.time < until AND g.to_time IS DISTINCT FROM g.from_time
      AND (c.channel_id IS NOT NULL
           OR (g.channel_id IS NULL AND g.source_id IN (SELECT o.source_id FROM sources AS o)))
),
qualities AS (
    SELECT r.channel_id, r.time, 'quality' AS what,
           quality(r.old_status) || ' → ' || quality(r.status) || ' ' || status_hex(r.status) AS detail
    FROM (SELECT s.channel_id, s.time, s.status, previous(s.status, s.channel_id) AS old_status
          FROM samples_of(channels, since - lookback, until) AS s) AS r
    WHERE r.status <> r.old_status AND quality(r.status) <> quality(r.old_status)
),
readings AS (
    SELECT s.channel_id, s.time, s.value, s.status, previous(s.value, s.channel_id) AS old_value,
           previous(s.status, s.channel_id) AS old_status
    FROM samples_of(channels, since - lookback, until) AS s
),
changes AS (
    SELECT r.channel_id, r.time, r.old_value, r.value, abs(r.value - r.old_value) AS size
    FROM readings AS r
    WHERE r.status >= 0 AND r.old_status >= 0 AND r.value <> r.old_value
      AND abs(r.value) < 1e50 AND abs(r.old_value) < 1e50 -- else the difference may overflow
),
steps AS MATERIALIZED (
    SELECT c.*, previous(c.size, c.channel_id) AS size_before FROM changes AS c
),
habits AS (
    SELECT s.channel_id, count(*) AS changes, quantile_cont(s.size, 0.9) AS usual
    FROM steps AS s
    GROUP BY s.channel_id
),
moves AS (
    SELECT s.channel_id, s.time,
           CASE WHEN w.kind = 'discrete' THEN 'state' WHEN h.changes <= 3 THEN 'held value' ELSE 'jump' END AS what,
           rounded_text(s.old_value) || ' → ' || rounded_text(s.value) || ' '
           || unit_at(s.channel_id, s.time) AS detail
    FROM steps AS s
    JOIN habits AS h ON h.channel_id = s.channel_id
    JOIN wanted AS w ON w.channel_id = s.channel_id
    WHERE (w.kind = 'discrete' AND h.changes <= busy)
       OR (w.kind = 'analog' AND (h.changes <= 3
                                  -- Only the first step of a jump is listed.
                                  OR (s.size > jump * h.usual AND s.size_before <= jump * h.usual)))
),
lines AS (
    SELECT e.time, e.id, e.what, e.channel, e.detail FROM events AS e
    UNION ALL
    SELECT g.time, g.id, g.what, g.channel, g.detail FROM gaps AS g
    UNION ALL
    SELECT m.time, NULL, m.what, w.name, m.detail
    FROM (SELECT * FROM qualities UNION ALL SELECT * FROM moves) AS m
    JOIN wanted AS w ON w.channel_id = m.channel_id
)
SELECT l.time, extract(epoch FROM l.time - coalesce(instant, since + (until - since) / 2))::float8 AS seconds, l.what, l.channel,
       l.detail, l.id
FROM lines AS l
WHERE l.time >= since;

CREATE MACRO timeline(
    since, until, channels := NULL, instant := NULL, jump := 10, busy := 20, lookback := '15 min'
) AS TABLE
WITH found AS (
    FROM timeline_of(since::TIMESTAMPTZ, until::TIMESTAMPTZ, channels::TEXT[], instant::TIMESTAMPTZ, jump::DOUBLE, busy::INT,
                     lookback::INTERVAL)
)
-- What concerns a whole source is found with each of its channels.
SELECT DISTINCT ON (time, channel, what, detail, id) time, seconds, what, channel, detail
FROM found
ORDER BY time, channel, what, detail, id;
