-- Trigger: the samples of a channel that becomes discrete or a counter, or that wraps elsewhere than before, give other
-- rollups: states, or increases. Maintenance recomputes those of the days whose samples are in the database.
CREATE OR REPLACE FUNCTION plant.mark_kinds_dirty() RETURNS trigger
LANGUAGE plpgsql
SET search_path = pg_catalog
SET jit = off
AS $$
DECLARE
    until CONSTANT timestamptz := plant.minute_of(clock_timestamp()) + INTERVAL '1 minute';
    ids   int[];
BEGIN
    EXECUTE $statement$ -- planned anew each time, as in _version_channels
    SELECT array_agg(n.id)
    FROM fresh AS n
    JOIN former AS f ON f.id = n.id
    WHERE n.kind IN ('discrete', 'counter')
      AND (n.kind, n.attributes ->> 'wraps_at') IS DISTINCT FROM (f.kind, f.attributes ->> 'wraps_at')
    $statement$ INTO ids;
    IF ids IS NOT NULL THEN
        INSERT INTO plant.rollup_dirty (from_time, to_time, channels)
        SELECT k.range_start, least(k.range_end, until), ids
        FROM timescaledb_information.chunks AS k
        WHERE k.hypertable_schema = 'plant' AND k.hypertable_name IN ('samples_raw', 'samples_packed')
          AND k.range_start < until;
    END IF;
    RETURN NULL;
END
$$;
CREATE OR REPLACE TRIGGER mark_kinds_dirty AFTER UPDATE ON plant.channel
    REFERENCING OLD TABLE AS former NEW TABLE AS fresh
    FOR EACH STATEMENT EXECUTE FUNCTION plant.mark_kinds_dirty();
