-- detail_text: the detail of an event as readable text
--
-- As in "limit hi, since 2026-03-09 10:00:00 UTC".
-- Times (µs since 1970, or ISO 8601) are written out. Empty members are left out, and so are those that repeat the
-- event's text or concern programs only.
--
-- Parameters
--   detail  jsonb  an object, as in plant.event
-- Cost: none.
-- Example: SELECT plant.detail_text('{"limit": "hi", "since": 1773050400000000}');
CREATE OR REPLACE FUNCTION plant.detail_text(detail jsonb) RETURNS text
LANGUAGE sql STABLE
AS $$
SELECT string_agg(replace(d.key, '_', ' ') || ' ' || w.words, ', ' ORDER BY d.ordinal)
FROM jsonb_each(detail) WITH ORDINALITY AS d (key, value, ordinal)
CROSS JOIN LATERAL (SELECT d.value #>> '{}' AS text, jsonb_typeof(d.value) AS type) AS v
CROSS JOIN LATERAL (
    SELECT nullif(CASE
        WHEN v.type = 'number' AND d.key ~ '(^|_)(since|until|at|from|to|time|us)$' AND abs(v.text::numeric) >= 1e14
            THEN to_char(to_timestamp(v.text::float8 / 1e6) AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS "UTC"')
        WHEN v.type = 'number' AND abs(v.text::numeric) >= 0.001 THEN trim_scale(round(v.text::numeric, 6))::text
        WHEN v.type = 'string' AND v.text ~ '^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d(:\d\d)?)$'
            THEN to_char(v.text::timestamptz AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS "UTC"')
        WHEN v.type = 'boolean' THEN CASE WHEN v.text::boolean THEN 'yes' ELSE 'no' END
        WHEN v.type = 'object' THEN NULL -- differences between old and new: the text of the event has them
        WHEN v.type = 'array' THEN (SELECT string_agg(a.item, ' ') FROM jsonb_array_elements_text(d.value) AS a (item))
        ELSE v.text
    END, '') AS words
) AS w
WHERE w.words IS NOT NULL AND d.key NOT IN ('state', 'active', 'revision', 'text_escaped')
$$;
