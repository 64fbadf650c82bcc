-- Like plant.refresh_portion, but only before the minutes that writers hold open. Also returns NULL if a writer is
-- closing a minute or waiting to. Row locks have no fair queue, table locks do: a portion locks the table in SHARE
-- mode. A writer's UPDATE waits for this lock, and the next portion gives way to the writer. So refreshing does not
-- hold up writers.
CREATE OR REPLACE FUNCTION plant.refresh_closed(closed timestamptz) RETURNS boolean
LANGUAGE plpgsql
SET search_path = pg_catalog
AS $$
BEGIN
    LOCK TABLE plant.rollup_closed IN SHARE MODE NOWAIT;
    -- A snapshot from before a minute was closed fails here, with a serialization failure.
    PERFORM FROM plant.rollup_closed AS c FOR UPDATE NOWAIT;
    RETURN plant.refresh_portion(least(closed, plant.first_open_minute()));
EXCEPTION WHEN serialization_failure OR lock_not_available THEN
    RETURN NULL;
END
$$;
