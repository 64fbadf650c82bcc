-- Of the values that a variable's query gives, in its order: the first {most} whose texts have all {words} (lower
-- case), and those that are {chosen} in any case. total: how many have the words.
WITH options AS MATERIALIZED (
    SELECT v.__text AS text, v.__value AS value, row_number() OVER () AS ordinal
    FROM ({query}) AS v
),
matching AS MATERIALIZED (
    SELECT o.ordinal
    FROM options AS o
    WHERE NOT EXISTS (SELECT FROM unnest({words}::text[]) AS w (word) WHERE strpos(lower(o.text), w.word) = 0)
)
SELECT o.text AS __text, o.value AS __value, (SELECT count(*) FROM matching) AS total
FROM options AS o
WHERE o.ordinal IN (SELECT m.ordinal FROM matching AS m ORDER BY m.ordinal LIMIT {most})
   OR o.value = ANY ({chosen}::text[])
ORDER BY o.ordinal
