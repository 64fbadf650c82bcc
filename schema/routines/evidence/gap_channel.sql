-- Gaps by channel: a gap of a whole source applies to each of its channels.
CREATE OR REPLACE VIEW plant.gap_channel AS
SELECT g.id AS gap_id, c.id AS channel_id, g.source_id, g.from_time, g.to_time, g.reason, g.detail, g.backfilled_at
FROM plant.gap AS g
JOIN plant.channel AS c ON c.source_id = g.source_id AND (g.channel_id IS NULL OR g.channel_id = c.id)
WHERE g.to_time IS DISTINCT FROM g.from_time;
COMMENT ON VIEW plant.gap_channel IS 'Gaps by channel; a gap of a whole source is one row for each of its channels.';
GRANT SELECT ON plant.gap_channel TO plant_owner;
