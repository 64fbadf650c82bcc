-- Trigger: gaps make minutes dirty. At the start of a gap, the value carried on becomes unknown; if the gap is
-- retracted or backfilled, it becomes known again. Gaps that begin in the same minute share one row of rollup_dirty,
-- with all their channels; a gap without a channel covers all channels of its source. The trigger runs once per
-- statement: once per row, planning was 85 % of the cost of a gap.
--
-- Most gaps begin in a minute that a writer holds open. The writer lists these minutes in its transaction
-- (plant.held_open). Rows of rollup_dirty for new gaps in them have open_since, and are deleted when the writer closes
-- the minute. The comment in tables/rollups.sql describes how minutes stay exact.
CREATE OR REPLACE FUNCTION plant.mark_gaps_dirty() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER -- for every role that writes gaps
SET search_path = pg_catalog
AS $$
DECLARE
    held CONSTANT timestamptz[] := coalesce(nullif(current_setting('plant.held_open', true), ''), '{}')::timestamptz[];
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
    INSERT INTO plant.rollup_dirty (from_time, to_time, channels, onward, open_since)
    SELECT g.minute, g.minute + INTERVAL '1 minute', array_agg(DISTINCT c.id), true,
           CASE WHEN TG_OP = 'INSERT' AND g.minute = ANY (held) THEN clock_timestamp() END
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
REVOKE EXECUTE ON FUNCTION plant.mark_gaps_dirty FROM PUBLIC;
CREATE OR REPLACE TRIGGER mark_gaps_dirty_inserted AFTER INSERT ON plant.gap REFERENCING NEW TABLE AS fresh
    FOR EACH STATEMENT EXECUTE FUNCTION plant.mark_gaps_dirty();
CREATE OR REPLACE TRIGGER mark_gaps_dirty_updated AFTER UPDATE ON plant.gap
    REFERENCING OLD TABLE AS former NEW TABLE AS fresh
    FOR EACH STATEMENT EXECUTE FUNCTION plant.mark_gaps_dirty();
CREATE OR REPLACE TRIGGER mark_gaps_dirty_deleted AFTER DELETE ON plant.gap REFERENCING OLD TABLE AS former
    FOR EACH STATEMENT EXECUTE FUNCTION plant.mark_gaps_dirty();
