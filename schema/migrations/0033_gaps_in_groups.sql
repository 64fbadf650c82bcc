-- Gaps make minutes dirty once a statement: a trigger for each row planned its statement for each row, which was 85 % of
-- what a gap cost, and left a row of rollup_dirty for each.

DROP TRIGGER gap_is_dirty ON plant.gap;
DROP FUNCTION plant.gap_is_dirty();

-- Where a gap begins, what is carried on from there becomes unknown; where it turns out to be none, known. Gaps that begin
-- in one minute make one row dirty, with all of their channels; one without a channel is of all channels of its source.
CREATE FUNCTION plant.gaps_are_dirty() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER -- whoever writes gaps
SET search_path = pg_catalog
AS $$
DECLARE
    minutes  timestamptz[];
    sources  int[];
    channels int[];
BEGIN
    IF TG_OP = 'INSERT' THEN
        SELECT array_agg(plant.minute_of(n.from_time)), array_agg(n.source_id), array_agg(n.channel_id)
        INTO minutes, sources, channels
        FROM fresh AS n
        WHERE n.to_time IS DISTINCT FROM n.from_time AND n.backfilled_at IS NULL;
    ELSIF TG_OP = 'UPDATE' THEN
        SELECT array_agg(plant.minute_of(n.from_time)), array_agg(n.source_id), array_agg(n.channel_id)
        INTO minutes, sources, channels
        FROM fresh AS n
        JOIN former AS f ON f.id = n.id
        WHERE (n.to_time IS DISTINCT FROM n.from_time AND n.backfilled_at IS NULL)
              <> (f.to_time IS DISTINCT FROM f.from_time AND f.backfilled_at IS NULL);
    ELSE
        SELECT array_agg(plant.minute_of(f.from_time)), array_agg(f.source_id), array_agg(f.channel_id)
        INTO minutes, sources, channels
        FROM former AS f
        WHERE f.to_time IS DISTINCT FROM f.from_time AND f.backfilled_at IS NULL;
    END IF;
    INSERT INTO plant.rollup_dirty (from_time, to_time, channels, onward)
    SELECT g.minute, g.minute + INTERVAL '1 minute', array_agg(DISTINCT c.id), true
    FROM unnest(minutes, sources, channels) AS g (minute, source_id, channel_id)
    CROSS JOIN LATERAL (
        SELECT g.channel_id AS id WHERE g.channel_id IS NOT NULL
        UNION ALL
        SELECT c.id FROM plant.channel AS c WHERE g.channel_id IS NULL AND c.source_id = g.source_id
    ) AS c
    GROUP BY g.minute;
    RETURN NULL;
END
$$;
REVOKE ALL ON FUNCTION plant.gaps_are_dirty() FROM PUBLIC;
CREATE TRIGGER gaps_are_dirty_inserted AFTER INSERT ON plant.gap REFERENCING NEW TABLE AS fresh
    FOR EACH STATEMENT EXECUTE FUNCTION plant.gaps_are_dirty();
CREATE TRIGGER gaps_are_dirty_updated AFTER UPDATE ON plant.gap REFERENCING OLD TABLE AS former NEW TABLE AS fresh
    FOR EACH STATEMENT EXECUTE FUNCTION plant.gaps_are_dirty();
CREATE TRIGGER gaps_are_dirty_deleted AFTER DELETE ON plant.gap REFERENCING OLD TABLE AS former
    FOR EACH STATEMENT EXECUTE FUNCTION plant.gaps_are_dirty();
