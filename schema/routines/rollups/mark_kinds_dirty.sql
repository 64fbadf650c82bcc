-- Trigger: the samples of a channel that becomes discrete or a counter, or that wraps elsewhere than before, give other
-- rollups: states, or increases. Maintenance recomputes those of the days whose samples are in the database. Planned
-- anew each time, as in _version_channels.
CREATE OR REPLACE FUNCTION plant.mark_kinds_dirty() RETURNS trigger
LANGUAGE plpgsql
SET search_path = pg_catalog
AS $$
BEGIN
    EXECUTE $statement$
    WITH changed AS (
        SELECT array_agg(n.id) AS ids
        FROM fresh AS n
        JOIN former AS f ON f.id = n.id
        WHERE n.kind IN ('discrete', 'counter')
          AND (n.kind, n.attributes ->> 'wraps_at') IS DISTINCT FROM (f.kind, f.attributes ->> 'wraps_at')
    )
    INSERT INTO plant.rollup_dirty (from_time, to_time, channels)
    SELECT k.range_start, least(k.range_end, m.minute), c.ids
    FROM changed AS c
    CROSS JOIN (SELECT plant.minute_of(clock_timestamp()) + INTERVAL '1 minute' AS minute) AS m
    CROSS JOIN timescaledb_information.chunks AS k
    WHERE c.ids IS NOT NULL AND k.hypertable_schema = 'plant' AND k.range_start < m.minute
      AND k.hypertable_name IN ('samples_raw', 'samples_packed')
    $statement$;
    RETURN NULL;
END
$$;
CREATE OR REPLACE TRIGGER mark_kinds_dirty AFTER UPDATE ON plant.channel
    REFERENCING OLD TABLE AS former NEW TABLE AS fresh
    FOR EACH STATEMENT EXECUTE FUNCTION plant.mark_kinds_dirty();
