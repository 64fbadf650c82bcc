-- chart_values: the points of a chart of one line: the means of a channel's steps, or the rates of a counter
--
-- A channel of texts has none.
--
-- Parameters
--   channel  int          id
--   since    timestamptz  from the step that contains this moment
--   until    timestamptz  before this moment
--   points   int          maximum number of steps
-- Cost: that of plant.chart_steps or plant.chart_rates.
-- Example: SELECT * FROM plant.chart_values(17, '2026-03-09 10:00+00', '2026-03-09 11:00+00', 500);
CREATE OR REPLACE FUNCTION plant.chart_values(channel int, since timestamptz, until timestamptz, points int)
RETURNS TABLE ("time" timestamptz, value float8)
LANGUAGE sql STABLE
AS $$
SELECT d.time, d.mean
FROM plant.channel AS c
CROSS JOIN LATERAL plant.chart_steps(c.id, since, until, points) AS d
WHERE c.id = channel AND c.kind NOT IN ('text', 'counter')
UNION ALL
SELECT r.time, r.rate
FROM plant.channel AS c
CROSS JOIN LATERAL plant.chart_rates(c.id, since, until, points) AS r
WHERE c.id = channel AND c.kind = 'counter'
$$;
