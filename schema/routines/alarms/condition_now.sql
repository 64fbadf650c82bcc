-- Conditions of servers, with the names that the alarm list shows.
CREATE OR REPLACE VIEW plant.condition_now AS
SELECT coalesce(c.name, s.name || '/' || k.source_name) AS channel, k.condition_name, k.state, k.active, k.since,
       k.priority, k.severity, k.message, s.name AS source, k.acknowledged_by, k.acknowledged_at, k.why,
       k.condition_key, c.id AS channel_id, k.source_id
FROM plant.condition AS k
JOIN plant.source AS s ON s.id = k.source_id
LEFT JOIN plant.channel AS c ON c.id = k.channel_id AND c.retired_at IS NULL;
COMMENT ON VIEW plant.condition_now IS
    'Current state of the conditions of OPC UA servers. channel: the channel whose variable is the source of the '
    'condition, otherwise source and SourceName.';
