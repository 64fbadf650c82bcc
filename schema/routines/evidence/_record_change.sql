-- Record an event of the given type with the differences between old and new, as text and as JSON.
CREATE OR REPLACE FUNCTION plant._record_change(type text, at timestamptz, source int, channel int, name text, old jsonb, new jsonb)
RETURNS void
LANGUAGE sql
SET search_path = pg_catalog
AS $$
WITH differing AS (
    SELECT coalesce(o.key, n.key) AS key, o.value AS old, n.value AS new
    FROM jsonb_each(coalesce(_record_change.old, '{}')) AS o
    FULL JOIN jsonb_each(coalesce(_record_change.new, '{}')) AS n ON n.key = o.key
    WHERE o.value IS DISTINCT FROM n.value
),
description AS (
    SELECT string_agg(concat(d.key, ' ', coalesce(nullif(d.old #>> '{}', ''), 'none'), ' → ',
                             coalesce(nullif(d.new #>> '{}', ''), 'none')), ', ' ORDER BY d.key) AS words,
           jsonb_build_object('name', _record_change.name, 'by', session_user,
                              'old', coalesce(jsonb_object_agg(d.key, d.old) FILTER (WHERE d.old IS NOT NULL), '{}'),
                              'new', coalesce(jsonb_object_agg(d.key, d.new) FILTER (WHERE d.new IS NOT NULL), '{}'))
               AS detail
    FROM differing AS d
    HAVING count(*) > 0
)
INSERT INTO plant.event (time, id, type, source_id, channel_id, text, detail)
SELECT at, hashtextextended(concat_ws(' ', at::text, type, source::text, channel::text, s.detail::text), 20)
           & 9223372036854775807,
       type, source, channel, s.words, s.detail
FROM description AS s
$$;
REVOKE EXECUTE ON FUNCTION plant._record_change FROM PUBLIC;
