-- The tables that hold a kind of data, and their time column. Existing tables are found through the views over them,
-- but for those that functions read.
CREATE OR REPLACE FUNCTION plant.retention_tables(what text) RETURNS TABLE (relation regclass, column_name name)
LANGUAGE sql STABLE
SET search_path = pg_catalog
AS $$
WITH RECURSIVE
named (relation) AS (
    SELECT to_regclass('plant.' || n.name)
    FROM unnest(CASE what WHEN 'raw' THEN ARRAY['samples_raw', 'samples_packed']
                          WHEN '1m' THEN ARRAY['samples_1m', 'rollup_minutes', 'rollup_states_1m',
                                               'rollup_increases_1m', 'event_count_1m']
                          WHEN '1h' THEN ARRAY['rollup_1h', 'rollup_states_1h', 'rollup_increases_1h']
                          WHEN 'event' THEN ARRAY['event'] END) AS n (name)
),
behind (relation) AS (
    SELECT n.relation FROM named AS n WHERE n.relation IS NOT NULL
    UNION
    SELECT d.refobjid::regclass
    FROM behind AS b
    JOIN pg_class AS v ON v.oid = b.relation AND v.relkind = 'v'
    JOIN pg_rewrite AS r ON r.ev_class = v.oid
    JOIN pg_depend AS d ON d.classid = 'pg_rewrite'::regclass AND d.objid = r.oid
        AND d.refclassid = 'pg_class'::regclass
    WHERE d.refobjid <> v.oid
)
SELECT b.relation, a.attname
FROM behind AS b
JOIN pg_class AS c ON c.oid = b.relation AND c.relkind IN ('r', 'p')
JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
    AND a.attname = CASE WHEN c.relname = 'samples_packed' THEN 'hour'
                         WHEN c.relname LIKE '%\_packed' THEN 'day' -- minutes: one row per channel and day
                         WHEN what IN ('1m', '1h') THEN 'bucket' ELSE 'time' END
WHERE EXISTS (SELECT FROM pg_attribute AS i WHERE i.attrelid = c.oid AND i.attname = 'channel_id')
$$;
