-- Alarms that are not annunciated now, and why.
CREATE OR REPLACE VIEW plant.alarm_inhibited AS
SELECT c.name AS channel, a.limit_name, a.state, a.active, a.since, a.shelved_until, a.who, a.why, a.value, a.threshold,
       c.unit, a.priority, a.channel_id, c.source_id
FROM plant.alarm AS a
JOIN plant.channel AS c ON c.id = a.channel_id
WHERE a.state IN ('shelved', 'suppressed_by_design', 'out_of_service')
  AND c.retired_at IS NULL
UNION ALL
SELECT k.channel, k.condition_name, k.state, k.active, k.since, NULL, NULL, 'on the server', NULL, NULL, '', k.priority,
       k.channel_id, k.source_id
FROM plant.condition_now AS k
WHERE k.state IN ('shelved', 'suppressed_by_design', 'out_of_service')
ORDER BY since DESC;
COMMENT ON VIEW plant.alarm_inhibited IS
    'Alarms that are shelved, suppressed by design or out of service, by whom and why. Of a condition of a server, '
    'limit_name is its name.';
