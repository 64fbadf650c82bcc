-- The event of the given type for the differences between old and new, as text and as JSON; no row if there are none.
-- One statement records the changes of all channels of a registration: an INSERT for each takes three times as long.
CREATE OR REPLACE FUNCTION plant._change_event(type text, at timestamptz, source int, channel int, name text,
                                               old jsonb, new jsonb)
RETURNS SETOF plant.event
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT s.at,
           hashtextextended(concat_ws(' ', s.at::text, s.type, s.source::text, s.channel::text, s.detail::text), 20)
           & 9223372036854775807,
           s.type, s.source, s.channel, NULL::int, s.words, s.detail
    FROM (
        SELECT at, type, source, channel,
               string_agg(concat(d.key, ' ', coalesce(nullif(d.old #>> '{}', ''), 'none'), ' → ',
                                 coalesce(nullif(d.new #>> '{}', ''), 'none')), ', ' ORDER BY d.key) AS words,
               jsonb_build_object('name', name, 'by', session_user,
                                  'old',
                                  coalesce(jsonb_object_agg(d.key, d.old) FILTER (WHERE d.old IS NOT NULL), '{}'),
                                  'new',
                                  coalesce(jsonb_object_agg(d.key, d.new) FILTER (WHERE d.new IS NOT NULL), '{}'))
                   AS detail
        FROM (
            SELECT coalesce(o.key, n.key) AS key, o.value AS old, n.value AS new
            FROM jsonb_each(coalesce(_change_event.old, '{}')) AS o
            FULL JOIN jsonb_each(coalesce(_change_event.new, '{}')) AS n ON n.key = o.key
            WHERE o.value IS DISTINCT FROM n.value
        ) AS d
        HAVING count(*) > 0
    ) AS s;
END;
REVOKE EXECUTE ON FUNCTION plant._change_event FROM PUBLIC;
