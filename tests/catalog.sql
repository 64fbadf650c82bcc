-- What a database's schema is, line by line: two of them are the same where these are.
WITH
acl AS (
    SELECT 'table' AS kind, c.oid, 0 AS sub, c.relacl AS acl FROM pg_class AS c
    UNION ALL
    SELECT 'table', a.attrelid, a.attnum, a.attacl FROM pg_attribute AS a
    UNION ALL
    SELECT 'routine', p.oid, 0, p.proacl FROM pg_proc AS p
    UNION ALL
    SELECT 'schema', n.oid, 0, n.nspacl FROM pg_namespace AS n
    UNION ALL
    SELECT 'database', d.oid, 0, d.datacl FROM pg_database AS d
    UNION ALL
    SELECT 'default', d.oid, 0, d.defaclacl FROM pg_default_acl AS d
),
granted AS (
    SELECT a.kind, a.oid, a.sub,
           string_agg(concat_ws(' ', CASE WHEN x.grantee = 0 THEN 'public' ELSE x.grantee::regrole::text END,
                                x.privilege_type, CASE WHEN x.is_grantable THEN 'grantable' END), ', '
                      ORDER BY x.grantee::regrole::text, x.privilege_type) AS granted
    FROM acl AS a
    CROSS JOIN LATERAL aclexplode(a.acl) AS x
    GROUP BY a.kind, a.oid, a.sub
),
relation AS (
    SELECT c.oid, c.relname, c.relkind, c.reloptions FROM pg_class AS c WHERE c.relnamespace = 'plant'::regnamespace
),
routine AS (
    SELECT p.oid, p.oid::regprocedure::text AS name FROM pg_proc AS p WHERE p.pronamespace = 'plant'::regnamespace
)
SELECT concat_ws(' | ', 'relation', r.relname, r.relkind, r.reloptions::text, g.granted,
                 obj_description(r.oid, 'pg_class')) AS line
FROM relation AS r
LEFT JOIN granted AS g ON g.kind = 'table' AND g.oid = r.oid AND g.sub = 0
UNION ALL
SELECT concat_ws(' | ', 'column', r.relname, row_number() OVER (PARTITION BY r.oid ORDER BY a.attnum), a.attname,
                 format_type(a.atttypid, a.atttypmod), CASE WHEN a.attnotnull THEN 'not null' END,
                 'default ' || pg_get_expr(d.adbin, d.adrelid), 'generated ' || nullif(a.attgenerated::text, ''),
                 'identity ' || nullif(a.attidentity::text, ''), 'compression ' || nullif(a.attcompression::text, ''),
                 a.attstorage, nullif(a.attcollation, 0)::regcollation::text, g.granted,
                 col_description(r.oid, a.attnum))
FROM relation AS r
JOIN pg_attribute AS a ON a.attrelid = r.oid AND a.attnum > 0 AND NOT a.attisdropped
LEFT JOIN pg_attrdef AS d ON d.adrelid = r.oid AND d.adnum = a.attnum
LEFT JOIN granted AS g ON g.kind = 'table' AND g.oid = r.oid AND g.sub = a.attnum
WHERE r.relkind <> 'i'
UNION ALL
SELECT concat_ws(' | ', 'constraint', c.conrelid::regclass::text, c.conname, pg_get_constraintdef(c.oid))
FROM pg_constraint AS c
WHERE c.connamespace = 'plant'::regnamespace
UNION ALL
SELECT 'index | ' || i.indexdef FROM pg_indexes AS i WHERE i.schemaname = 'plant'
UNION ALL
SELECT 'trigger | ' || pg_get_triggerdef(t.oid)
FROM pg_trigger AS t
JOIN relation AS r ON r.oid = t.tgrelid
WHERE NOT t.tgisinternal
UNION ALL
SELECT concat_ws(' | ', 'view', r.relname, pg_get_viewdef(r.oid)) FROM relation AS r WHERE r.relkind = 'v'
UNION ALL
SELECT concat_ws(' | ', 'routine', r.name, g.granted, obj_description(r.oid, 'pg_proc'), pg_get_functiondef(r.oid))
FROM routine AS r
LEFT JOIN granted AS g ON g.kind = 'routine' AND g.oid = r.oid
UNION ALL
SELECT concat_ws(' | ', 'hypertable', d.hypertable_name, d.column_name, d.time_interval)
FROM timescaledb_information.dimensions AS d
WHERE d.hypertable_schema = 'plant'
UNION ALL
SELECT concat_ws(' | ', 'schema plant', g.granted)
FROM granted AS g
WHERE g.kind = 'schema' AND g.oid = 'plant'::regnamespace
UNION ALL
SELECT concat_ws(' | ', 'by default', d.defaclobjtype, g.granted)
FROM pg_default_acl AS d
JOIN granted AS g ON g.kind = 'default' AND g.oid = d.oid
WHERE d.defaclnamespace = 'plant'::regnamespace
UNION ALL
SELECT concat_ws(' | ', 'database', g.granted)
FROM pg_database AS d
JOIN granted AS g ON g.kind = 'database' AND g.oid = d.oid
WHERE d.datname = current_database()
UNION ALL
SELECT concat_ws(' | ', 'limited', p.oid::regprocedure::text, g.granted)
FROM pg_proc AS p
JOIN granted AS g ON g.kind = 'routine' AND g.oid = p.oid
WHERE p.pronamespace = 'pg_catalog'::regnamespace
  AND p.proname ~ '^(pg_(try_)?advisory_(xact_)?lock.*|lo_.*|loread|lowrite|pg_logical_emit_message)$'
   OR p.pronamespace = 'public'::regnamespace AND p.proname ~ '^(add|alter|run|delete)_job$'
UNION ALL
SELECT concat_ws(' | ', 'setting', s.key, s.value)
FROM plant.setting AS s
WHERE s.key LIKE 'routine/%' OR s.key IN ('edition', 'timescaledb_version')
ORDER BY line
