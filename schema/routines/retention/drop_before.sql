-- Drop data before t of a kind (raw, 1m, 1h, event) and a class (NULL: all), oldest first,
-- or list what would be dropped.
CREATE OR REPLACE FUNCTION plant.drop_before(t timestamptz, what text, class text, dry_run boolean)
RETURNS TABLE (relation text, day timestamptz, channels int, bytes bigint, action text)
LANGUAGE sql
SET search_path = pg_catalog
AS $$
SELECT u.relation::text, s.day, s.channels, s.bytes, s.action
FROM plant.retention_units(what) AS u
CROSS JOIN LATERAL plant.drop_slice(what, u.relation, u.from_time, least(u.to_time, t),
                                    CASE WHEN class IS NOT NULL THEN ARRAY[class] END, 'asked for', dry_run) AS s
WHERE u.from_time < least(t, plant.closed_until())
$$;
COMMENT ON FUNCTION plant.drop_before IS
    'Drop data before t of a kind (raw, 1m, 1h, event) and a class (NULL: all); dry_run: only list it. The open day '
    'is never dropped, nor an unsealed day if days are sealed.';
