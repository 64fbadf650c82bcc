-- The data that has reached the age limit of its class, as slices for plant.drop_slice, oldest first. Only closed days;
-- of a chunk that is partly old enough, that part.
CREATE OR REPLACE FUNCTION plant.retention_due()
RETURNS TABLE (what text, relation regclass, from_time timestamptz, to_time timestamptz, classes text[])
LANGUAGE sql STABLE
SET search_path = pg_catalog
SET timezone = 'UTC'
AS $$
WITH
cutoffs AS MATERIALIZED (
    SELECT k.what, c.name AS class,
           date_trunc('day', plant.closed_until() - CASE k.what WHEN 'raw' THEN c.raw WHEN '1m' THEN c.minute
                                                                WHEN '1h' THEN c.hour ELSE c.event END, 'UTC') AS cutoff
    FROM plant.retention_class AS c
    CROSS JOIN unnest(ARRAY['raw', '1m', '1h', 'event']) AS k (what)
),
aged AS (
    SELECT c.* FROM cutoffs AS c WHERE c.cutoff IS NOT NULL
)
SELECT a.what, u.relation, u.from_time, least(u.to_time, a.cutoff), array_agg(a.class ORDER BY a.class)
FROM (SELECT DISTINCT a.what FROM aged AS a) AS w
CROSS JOIN LATERAL plant.retention_units(w.what) AS u
JOIN aged AS a ON a.what = w.what AND a.cutoff > u.from_time
GROUP BY a.what, u.relation, u.from_time, least(u.to_time, a.cutoff)
ORDER BY u.from_time, a.what, u.relation::text, 4
$$;
