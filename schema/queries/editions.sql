-- Detection of TimescaleDB's edition.

-- name: select_edition
-- By the license setting: 'apache' or 'timescale'.
SELECT CASE current_setting('timescaledb.license') WHEN 'timescale' THEN 'community' ELSE 'apache' END;

-- name: count_columnstore_chunks
-- Chunks that only the Community edition can read.
SELECT count(*)
FROM timescaledb_information.chunks AS k
WHERE k.hypertable_schema = 'plant' AND k.is_compressed;

-- name: upsert_edition
-- $1 edition.
INSERT INTO plant.setting (key, value)
SELECT 'edition', $1
UNION ALL
SELECT 'timescaledb_version', e.extversion FROM pg_extension AS e WHERE e.extname = 'timescaledb'
ON CONFLICT (key) DO UPDATE SET value = excluded.value WHERE plant.setting.value <> excluded.value;

-- name: format_decompression_limit
-- A statement, on Community and unless it is in force: no limit on the samples that the late rows of one transaction
-- may decompress. With the default of 100,000 a replay of old data would never commit.
SELECT format('ALTER DATABASE %I SET timescaledb.max_tuples_decompressed_per_dml_transaction = 0', d.datname)
FROM pg_database AS d
WHERE d.datname = current_database() AND $1 = 'community'
  AND NOT EXISTS (
      SELECT FROM pg_db_role_setting AS s
      WHERE s.setdatabase = d.oid AND s.setrole = 0
        AND 'timescaledb.max_tuples_decompressed_per_dml_transaction=0' = ANY (s.setconfig)
  );
