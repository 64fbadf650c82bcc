-- The limits in the tag lists.
CREATE OR REPLACE VIEW plant.alarm_limit AS
SELECT c.id AS channel_id, c.name AS channel, l.limit_name, coalesce((l.setting #>> '{}')::float8, 0) AS threshold,
       coalesce((c.attributes ->> 'alarm_deadband')::float8, 0) AS deadband, c.unit,
       coalesce(c.attributes ->> 'alarm_priority', 'medium') AS priority
FROM plant.channel AS c
CROSS JOIN LATERAL (
    SELECT k.limit_name, CASE WHEN k.limit_name = 'bad' THEN '0'::jsonb
                              ELSE c.attributes -> ('alarm_' || k.limit_name) END
    FROM unnest(ARRAY['lolo', 'lo', 'hi', 'hihi', 'rate', 'stale', 'bad']) AS k (limit_name)
    WHERE c.attributes ? ('alarm_' || k.limit_name)
) AS l (limit_name, setting)
WHERE c.retired_at IS NULL
  AND l.setting IS DISTINCT FROM 'null'::jsonb;
COMMENT ON VIEW plant.alarm_limit IS
    'Each alarm limit of the tag lists: threshold in the channel''s unit (rate: units per second; stale: seconds; '
    'bad: 0).';
