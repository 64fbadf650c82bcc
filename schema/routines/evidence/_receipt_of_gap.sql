-- Trigger: a receipt for each sealed day that a gap touches, with what the gap was before (was: null if it is new) and
-- is now. The writer signs it: a change of anybody else explains no difference from a seal.
CREATE OR REPLACE FUNCTION plant._receipt_of_gap() RETURNS trigger
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog
AS $$
DECLARE
    today   timestamptz := date_trunc('day', clock_timestamp(), 'UTC');
    ends    timestamptz := coalesce(NEW.to_time, 'infinity');
    changes jsonb;
BEGIN
    IF TG_OP = 'UPDATE' THEN
        ends := greatest(ends, coalesce(OLD.to_time, 'infinity'));
    END IF;
    SELECT jsonb_object_agg(g.key, CASE WHEN g.reason IS NOT NULL THEN jsonb_build_object(
               'to', (extract(epoch FROM g.to_time) * 1000000)::int8, 'reason', g.reason, 'detail', g.detail,
               'backfilled', g.backfilled) END)
    INTO changes
    FROM (VALUES ('now', NEW.to_time, NEW.reason, NEW.detail, NEW.backfilled_at IS NOT NULL),
                 ('was', OLD.to_time, OLD.reason, OLD.detail, OLD.backfilled_at IS NOT NULL))
        AS g (key, to_time, reason, detail, backfilled);
    INSERT INTO plant.receipt (day, kind, content)
    SELECT s.day, 'gap', convert_to((jsonb_build_object(
               'day', s.day, 'source', NEW.source_id, 'channel', NEW.channel_id,
               'from', (extract(epoch FROM NEW.from_time) * 1000000)::int8) || changes)::text, 'UTF8')
    FROM unnest(plant.sealed_among(ARRAY(
             SELECT d::date
             FROM generate_series(date_trunc('day', NEW.from_time, 'UTC') AT TIME ZONE 'UTC',
                                  least(ends, today - INTERVAL '1 microsecond') AT TIME ZONE 'UTC',
                                  INTERVAL '1 day') AS d)))
        AS s (day);
    RETURN NULL;
END
$$;
CREATE OR REPLACE TRIGGER receipt_of_gap AFTER INSERT OR UPDATE ON plant.gap
    FOR EACH ROW WHEN (NEW.from_time < date_trunc('day', now(), 'UTC'))
    EXECUTE FUNCTION plant._receipt_of_gap();
