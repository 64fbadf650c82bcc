-- A gap of a source without channels (a gateway that was silent before its first line) made the minute of no channel dirty.
-- There is nothing to make of it, so no portion took the row away: refresh_rollups went round at it without an end, and
-- what else was dirty on that day, and before, was not made.
CREATE OR REPLACE FUNCTION plant.gap_is_dirty() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER -- whoever writes gaps
SET search_path = pg_catalog
AS $$
BEGIN
    INSERT INTO plant.rollup_dirty (from_time, to_time, channels, onward)
    SELECT plant.minute_of(g.from_time), plant.minute_of(g.from_time) + INTERVAL '1 minute', c.channels, true
    FROM (SELECT coalesce(NEW.from_time, OLD.from_time) AS from_time, coalesce(NEW.channel_id, OLD.channel_id) AS channel_id,
                 coalesce(NEW.source_id, OLD.source_id) AS source_id) AS g
    CROSS JOIN LATERAL (
        SELECT CASE WHEN g.channel_id IS NULL THEN ARRAY(SELECT c.id FROM plant.channel AS c WHERE c.source_id = g.source_id)
                    ELSE ARRAY[g.channel_id] END AS channels
    ) AS c
    WHERE c.channels <> '{}'
      AND coalesce(NEW.to_time IS DISTINCT FROM NEW.from_time AND NEW.backfilled_at IS NULL, false)
          <> coalesce(OLD.to_time IS DISTINCT FROM OLD.from_time AND OLD.backfilled_at IS NULL, false);
    RETURN NULL;
END
$$;

LOCK TABLE plant.rollup_dirty; -- a writer that is at it may have such a row yet to commit
DELETE FROM plant.rollup_dirty AS d WHERE d.channels = '{}';
ALTER TABLE plant.rollup_dirty ADD CONSTRAINT rollup_dirty_channels CHECK (channels <> '{}');
