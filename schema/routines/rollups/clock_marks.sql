-- The 100 newest moments of an interval at which a clock was not to be trusted: plantlog's was set, or it and one of
-- these sources differed. Dashboards mark them.
CREATE OR REPLACE FUNCTION plant.clock_marks(since timestamptz, until timestamptz, sources int[])
RETURNS TABLE ("time" timestamptz, text text)
LANGUAGE sql STABLE
AS $$
SELECT e.time, e.type || ' ' || e.text || coalesce(': ' || plant.detail_text(e.detail), '')
FROM plant.event AS e
WHERE e.type IN ('clock_set', 'clock_skew') AND e.time BETWEEN since AND until
  AND (e.source_id IS NULL OR e.source_id = ANY (sources))
ORDER BY e.time DESC
LIMIT 100
$$;
