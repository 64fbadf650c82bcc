-- Before which time retention may have dropped data of a kind (raw, 1m, 1h) of a channel, by any class that it ever
-- had. NULL: none.
CREATE OR REPLACE FUNCTION plant.dropped_until(channel int, what text) RETURNS timestamptz
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog
AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM plant.dropped AS d WHERE d.what = dropped_until.what) THEN
        RETURN NULL;
    END IF;
    RETURN (
        SELECT max(d.until)
        FROM plant.channel_version AS v
        JOIN plant.source AS s ON s.id = v.source_id
        LEFT JOIN plant.installation AS i ON i.id = s.installation_id
        JOIN plant.dropped AS d ON d.what = dropped_until.what AND d.retention = concat(i.class_prefix, v.retention)
        WHERE v.channel_id = channel);
END
$$;
