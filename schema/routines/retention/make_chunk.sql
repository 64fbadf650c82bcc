-- Create the chunks of a table that will hold t; returns how many were created. A row that is inserted and deleted in
-- the same transaction creates a chunk. (TimescaleDB's own function is not in the Apache-2 edition.)
CREATE OR REPLACE FUNCTION plant.make_chunk(relation regclass, t timestamptz) RETURNS int
LANGUAGE plpgsql
SECURITY DEFINER -- so that creating chunks ahead needs no privilege to write or delete samples
SET search_path = pg_catalog
SET lock_timeout = '2s'
AS $$
DECLARE
    dimension name;
    "columns" text;
    "values"  text;
    made      regclass;
    row_at    tid;
BEGIN
    SELECT d.column_name INTO dimension
    FROM timescaledb_information.dimensions AS d
    JOIN pg_class AS c ON c.oid = relation AND c.relname = d.hypertable_name
        AND c.relnamespace::regnamespace::name = d.hypertable_schema
    WHERE d.hypertable_schema = 'plant' AND d.time_interval IS NOT NULL;
    IF NOT FOUND OR EXISTS (
        SELECT FROM timescaledb_information.chunks AS k
        JOIN pg_class AS c ON c.oid = relation AND c.relname = k.hypertable_name
        WHERE k.hypertable_schema = 'plant' AND k.range_start <= t AND k.range_end > t) THEN
        RETURN 0;
    END IF;
    SELECT string_agg(quote_ident(a.attname), ', '),
           string_agg(CASE WHEN a.attname = dimension THEN '$1'
                           WHEN a.atttypid = 'jsonb'::regtype THEN '''{}'''
                           WHEN a.atttypid = 'timestamptz'::regtype THEN '$1'
                           ELSE quote_literal('1') END, ', ')
    INTO "columns", "values"
    FROM pg_attribute AS a
    WHERE a.attrelid = relation AND a.attnum > 0 AND NOT a.attisdropped AND a.attnotnull AND NOT a.atthasdef
      AND a.attidentity = '';
    EXECUTE format('INSERT INTO %s AS r (%s) VALUES (%s) RETURNING r.tableoid, r.ctid', relation, "columns", "values")
    INTO made, row_at USING t;
    EXECUTE format('DELETE FROM %s AS r WHERE r.ctid = $1', made) USING row_at;
    RETURN 1;
END
$$;
REVOKE EXECUTE ON FUNCTION plant.make_chunk FROM PUBLIC;
GRANT EXECUTE ON FUNCTION plant.make_chunk TO plant_maintenance, plant_owner;
