-- The oldest time in a table without chunks, by one index lookup per channel.
CREATE OR REPLACE FUNCTION plant.oldest_time(relation regclass, column_name name) RETURNS timestamptz
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog
AS $$
DECLARE
    oldest timestamptz;
BEGIN
    EXECUTE format('SELECT min(o.oldest)
                    FROM (SELECT c.id FROM plant.channel AS c UNION ALL SELECT 0) AS c (id)
                    CROSS JOIN LATERAL (SELECT r.%1$I AS oldest FROM %2$s AS r WHERE r.channel_id = c.id
                                        ORDER BY r.%1$I LIMIT 1) AS o', column_name, relation) INTO oldest;
    RETURN oldest;
END
$$;
