-- Alarms that need an operator's attention: active or not acknowledged, most urgent first.
CREATE OR REPLACE VIEW plant.alarm_active AS
SELECT c.name AS channel, a.limit_name, a.state, a.active, a.since, a.value, a.threshold, c.unit, a.priority,
       plant.unit_of(c.name) AS plant_unit, s.name AS source, a.acknowledged_by, a.acknowledged_at,
       plant.priority_rank(a.priority) AS priority_rank, a.channel_id, c.source_id
FROM plant.alarm AS a
JOIN plant.channel AS c ON c.id = a.channel_id
JOIN plant.source AS s ON s.id = c.source_id
WHERE a.state IN ('unacknowledged_active', 'acknowledged_active', 'return_to_normal_unacknowledged',
                  'latched_unacknowledged')
  AND c.retired_at IS NULL
UNION ALL
SELECT k.channel, k.condition_name, k.state, k.active, k.since, NULL, NULL, '', k.priority, plant.unit_of(k.channel),
       k.source, k.acknowledged_by, k.acknowledged_at, plant.priority_rank(k.priority), k.channel_id, k.source_id
FROM plant.condition_now AS k
WHERE k.state IN ('unacknowledged_active', 'acknowledged_active', 'return_to_normal_unacknowledged')
ORDER BY priority_rank, since DESC;
COMMENT ON VIEW plant.alarm_active IS
    'Alarms that are active or not acknowledged, most urgent first. unit: unit of measure of the value; plant_unit: '
    'unit of the plant. Of a condition of a server, limit_name is its name.';
