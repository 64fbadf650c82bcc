-- Those of the channels whose data of a kind (raw, 1m, 1h) at a time has not been dropped by retention.
CREATE OR REPLACE FUNCTION plant.retained_channels(channels int[], what text, at timestamptz) RETURNS int[]
LANGUAGE sql STABLE
SET search_path = pg_catalog
AS $$
SELECT coalesce(array_agg(i.id), '{}')
FROM unnest(channels) AS i (id)
LEFT JOIN plant.channel_class AS c ON c.channel_id = i.id
LEFT JOIN plant.dropped AS d ON d.what = retained_channels.what AND d.retention = coalesce(c.class, 'default')
WHERE d.until IS NULL OR d.until <= at
$$;
