-- Whose a source, class or setting is, is no change of it: an event taken_over says when that changes.
CREATE OR REPLACE FUNCTION plant._record_row_change() RETURNS trigger
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog
AS $$
DECLARE
    aside  text[] := ARRAY['id', 'state', 'state_since', 'reason', 'installation_id'];
    former jsonb := to_jsonb(OLD) - aside;
    fresh  jsonb := CASE TG_OP WHEN 'UPDATE' THEN to_jsonb(NEW) - aside END;
BEGIN
    PERFORM plant._record_change(TG_ARGV[0], clock_timestamp(), (to_jsonb(OLD) ->> 'id')::int, NULL,
                                 coalesce(former ->> 'name', former ->> 'key'), former, fresh);
    RETURN NULL;
END
$$;
