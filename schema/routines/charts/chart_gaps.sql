-- chart_gaps: the gaps of a channel at which a chart breaks its line
--
-- A device that answers more slowly than it is polled has a gap between any two samples: these gaps are regular and do
-- not break the line. A gap poll_missed is regular if another one adjoins it, if there are at least five of those, and
-- if it is at most three times as long as their median.
--
-- Parameters
--   channel  int          id
--   since    timestamptz  gaps that reach beyond this moment
--   until    timestamptz  gaps that begin before this moment
-- Cost: one pass over the channel's gaps of the interval and ten minutes around it.
-- Example: SELECT * FROM plant.chart_gaps(17, '2026-03-09 10:00+00', '2026-03-09 11:00+00');
CREATE OR REPLACE FUNCTION plant.chart_gaps(channel int, since timestamptz, until timestamptz)
RETURNS TABLE (from_time timestamptz, to_time timestamptz, reason text, detail text, backfilled boolean)
LANGUAGE sql STABLE
AS $$
WITH
gaps AS (
    SELECT g.from_time, g.to_time, g.reason, g.detail, g.backfilled_at IS NOT NULL AS backfilled,
           g.reason = 'poll_missed' AND (g.from_time = lag(g.to_time) OVER by_reason
                                         OR g.to_time = lead(g.from_time) OVER by_reason) AS in_turn
    FROM plant.gap_channel AS g
    WHERE g.channel_id = channel AND g.from_time < until + INTERVAL '10 min'
      AND coalesce(g.to_time, 'infinity') > since - INTERVAL '10 min'
    WINDOW by_reason AS (PARTITION BY g.reason ORDER BY g.from_time)
),
usual_lengths AS (
    SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY g.to_time - g.from_time) AS length
    FROM gaps AS g
    WHERE g.in_turn
    HAVING count(*) >= 5
)
SELECT g.from_time, g.to_time, g.reason, g.detail, g.backfilled
FROM gaps AS g
LEFT JOIN usual_lengths AS r ON g.in_turn
WHERE g.from_time < until AND coalesce(g.to_time, 'infinity') > since
  AND (g.to_time - g.from_time <= 3 * r.length) IS NOT TRUE
$$;
