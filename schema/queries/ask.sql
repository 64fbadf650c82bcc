-- `plantlog ask` calls the functions of schema/routines/forensics.

-- name: set_installation
-- plant.channels_like returns only channels of installation $1 (NULL: all).
SELECT set_config('plant.installation', coalesce($1::uuid::text, ''), false);

-- name: format_call
-- A statement that calls function $1 with the parameters in the JSON object $2. PostgreSQL parses each as its type.
SELECT format('SELECT * FROM plant.%I(%s)', $1::text, string_agg(format('%I => %L', a.key, a.value), ', '))
FROM json_each_text($2) AS a;

-- name: select_unmatched_patterns
-- The patterns among $1 that match no channel.
SELECT p.pattern
FROM unnest($1::text[]) AS p (pattern)
WHERE NOT EXISTS (SELECT FROM plant.channels_like(ARRAY[p.pattern]));

-- name: format_array
-- The patterns $1 as an array literal.
SELECT ($1::text[])::text;
