-- Trigger: sources, retention classes, settings and installations have no versions; events record their changes. A new
-- owner (installation_id) does not count as a change: the event taken_over records it.
CREATE OR REPLACE FUNCTION plant._record_row_change() RETURNS trigger
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog
AS $$
DECLARE
    source int    := CASE TG_TABLE_NAME WHEN 'source' THEN (to_jsonb(OLD) ->> 'id')::int END;
    aside  text[] := ARRAY['id', 'state', 'state_since', 'reason', 'installation_id'];
    former jsonb := to_jsonb(OLD) - aside;
    fresh  jsonb := CASE TG_OP WHEN 'UPDATE' THEN to_jsonb(NEW) - aside END;
BEGIN
    INSERT INTO plant.event
    SELECT e.*
    FROM plant._change_event(TG_ARGV[0], clock_timestamp(), source, NULL,
                             coalesce(former ->> 'name', former ->> 'key', former ->> 'plant'), former, fresh) AS e;
    RETURN NULL;
END
$$;
CREATE OR REPLACE TRIGGER record_change AFTER UPDATE OF name, kind, address, attributes, retired_at, installation_id
    ON plant.source
    FOR EACH ROW EXECUTE FUNCTION plant._record_row_change('source_changed');
CREATE OR REPLACE TRIGGER record_change AFTER UPDATE OR DELETE ON plant.retention_class
    FOR EACH ROW EXECUTE FUNCTION plant._record_row_change('retention_changed');
CREATE OR REPLACE TRIGGER record_change AFTER UPDATE OR DELETE ON plant.setting
    FOR EACH ROW WHEN (OLD.installation_id IS NOT NULL)
    EXECUTE FUNCTION plant._record_row_change('setting_changed');
CREATE OR REPLACE TRIGGER record_change AFTER UPDATE OF sealing ON plant.installation
    FOR EACH ROW WHEN (OLD.sealing <> NEW.sealing)
    EXECUTE FUNCTION plant._record_row_change('setting_changed');
