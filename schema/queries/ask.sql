-- How `plantlog ask` calls a function of schema/forensics.

-- name: statement
-- A statement: function $1 with the parameters that the JSON object $2 names. PostgreSQL reads each as its own type.
SELECT format('SELECT * FROM plant.%I(%s)', $1::text, string_agg(format('%I => %L', a.key, a.value), ', '))
FROM json_each_text($2) AS a;

-- name: unmatched
-- Those of the patterns $1 that mean no channel.
SELECT p.pattern
FROM unnest($1::text[]) AS p (pattern)
WHERE NOT EXISTS (SELECT FROM plant.channels_like(ARRAY[p.pattern]));

-- name: array
-- The patterns $1 as the text of an array.
SELECT ($1::text[])::text;
