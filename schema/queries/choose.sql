-- `plantlog bench choose`: plantlog and other databases. Times in braces are µs since 1970-01-01 UTC.

-- name: plantlog_insert_channels
-- $1 name of the source, $2 names and $3 units of the channels.
WITH source AS (
    INSERT INTO plant.source (name, kind, address) VALUES ($1, 'push', $1)
    RETURNING id
)
INSERT INTO plant.channel (name, source_id, address, kind, unit)
SELECT c.name, source.id, c.name, 'analog', c.unit
FROM source, unnest($2::text[], $3::text[]) WITH ORDINALITY AS c (name, unit, place)
ORDER BY c.place
RETURNING id, source_id;

-- name: plantlog_is_open
-- Whether chunks before $1 still stand as rows, empty or not.
SELECT EXISTS (SELECT FROM plant._raw_chunks($1) AS k WHERE NOT k.columnstored);

-- name: plantlog_vacuum
-- As autovacuum would.
VACUUM (ANALYZE) plant.samples_raw, plant.samples_packed;

-- name: plantlog_raw
SELECT s.time, s.value, s.status
FROM plant.samples_between(ARRAY[{channel}], to_timestamp({first} / 1e6), to_timestamp({last} / 1e6)) AS s
ORDER BY s.time;

-- name: plantlog_by_minute
-- Bad statuses are negative here.
SELECT public.time_bucket('1 minute', s.time) AS minute, avg(s.value) AS mean
FROM plant.samples_between(ARRAY[{channel}], to_timestamp({first} / 1e6), to_timestamp({last} / 1e6)) AS s
WHERE s.status >= 0
GROUP BY 1
ORDER BY 1;

-- name: plantlog_size
SELECT (sum(s.bytes) + pg_total_relation_size('plant.channel'))::int8
FROM plant.storage() AS s
WHERE s.relation IN ('samples_raw', 'samples_packed');

-- name: postgresql_create_tables
CREATE TABLE channel (id int PRIMARY KEY, name text NOT NULL UNIQUE, unit text NOT NULL);
CREATE TABLE samples (
    time       timestamptz NOT NULL,
    value      float8      NOT NULL,
    channel_id int         NOT NULL,
    status     int         NOT NULL,
    PRIMARY KEY (channel_id, time)
);

-- name: postgresql_insert_channels
INSERT INTO channel (id, name, unit)
SELECT c.id, c.name, c.unit FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS c (name, unit, id);

-- name: postgresql_create_staging
CREATE TEMPORARY TABLE IF NOT EXISTS staged (LIKE samples);

-- name: postgresql_insert_staged
WITH deleted AS (DELETE FROM staged RETURNING *)
INSERT INTO samples (time, value, channel_id, status)
SELECT t.time, t.value, t.channel_id, t.status FROM deleted AS t
ON CONFLICT DO NOTHING;

-- name: postgresql_vacuum
VACUUM (ANALYZE) samples;

-- name: postgresql_raw
SELECT s.time, s.value, s.status
FROM samples AS s
WHERE s.channel_id = {channel} AND s.time >= to_timestamp({first} / 1e6) AND s.time < to_timestamp({last} / 1e6)
ORDER BY s.time;

-- name: postgresql_by_minute
SELECT date_trunc('minute', s.time) AS minute, avg(s.value) AS mean
FROM samples AS s
WHERE s.channel_id = {channel} AND s.time >= to_timestamp({first} / 1e6) AND s.time < to_timestamp({last} / 1e6)
  AND s.status >= 0
GROUP BY 1
ORDER BY 1;

-- name: postgresql_size
SELECT (pg_total_relation_size('samples') + pg_total_relation_size('channel'))::int8;

-- name: influxdb_raw
SELECT value, status FROM samples WHERE channel = '{name}' AND time >= {first}u AND time < {last}u;

-- name: influxdb_by_minute
SELECT mean(value) FROM samples WHERE channel = '{name}' AND time >= {first}u AND time < {last}u
GROUP BY time(1m) fill(none);

-- name: questdb_create_table
CREATE TABLE samples (time TIMESTAMP, channel SYMBOL CAPACITY 32768 INDEX, unit SYMBOL, value DOUBLE, status INT)
TIMESTAMP(time) PARTITION BY DAY WAL DEDUP UPSERT KEYS(time, channel);

-- name: questdb_select_wal_state
SELECT writerTxn = sequencerTxn, suspended FROM wal_tables() WHERE name = 'samples';

-- name: questdb_raw
SELECT cast(time AS long), value, status FROM samples
WHERE channel = $1 AND time >= cast($2 AS timestamp) AND time < cast($3 AS timestamp);

-- name: questdb_by_minute
SELECT cast(time AS long), avg(value) FROM samples
WHERE channel = $1 AND time >= cast($2 AS timestamp) AND time < cast($3 AS timestamp) AND status >= 0
SAMPLE BY 1m ALIGN TO CALENDAR;

-- name: questdb_size
SELECT sum(diskSize) FROM table_partitions('samples') WHERE NOT active;

-- name: clickhouse_create_database
CREATE DATABASE IF NOT EXISTS bench;

-- name: clickhouse_create_samples
CREATE TABLE bench.samples (
    channel Int32,
    time    DateTime64(6, 'UTC') CODEC(DoubleDelta, ZSTD(1)),
    value   Float64 CODEC(Gorilla, ZSTD(1)),
    status  UInt32 CODEC(ZSTD(1))
)
ENGINE = ReplacingMergeTree PARTITION BY toYYYYMMDD(time) ORDER BY (channel, time)
SETTINGS fsync_after_insert = 1, fsync_part_directory = 1;

-- name: clickhouse_create_channel
CREATE TABLE bench.channel (id Int32, name String, unit LowCardinality(String)) ENGINE = MergeTree ORDER BY id;

-- name: clickhouse_insert_channels
INSERT INTO bench.channel SELECT id, name, unit FROM Python(rows);

-- name: clickhouse_insert_samples
INSERT INTO bench.samples SELECT channel, fromUnixTimestamp64Micro(time, 'UTC'), value, status FROM Python(rows);

-- name: clickhouse_optimize
OPTIMIZE TABLE bench.samples FINAL;

-- name: clickhouse_raw
SELECT toUnixTimestamp64Micro(time) AS time, value, status FROM bench.samples FINAL
WHERE channel = {channel} AND samples.time >= fromUnixTimestamp64Micro({first}, 'UTC')
  AND samples.time < fromUnixTimestamp64Micro({last}, 'UTC')
ORDER BY time;

-- name: clickhouse_by_minute
SELECT toInt64(toUnixTimestamp(toStartOfMinute(samples.time))) * 1000000 AS minute, avg(value) AS mean
FROM bench.samples FINAL
WHERE channel = {channel} AND samples.time >= fromUnixTimestamp64Micro({first}, 'UTC')
  AND samples.time < fromUnixTimestamp64Micro({last}, 'UTC') AND status < 2147483648
GROUP BY minute ORDER BY minute;

-- name: clickhouse_size
SELECT sum(bytes_on_disk) FROM system.parts WHERE database = 'bench' AND active;

-- name: duckdb_copy_rows
COPY rows TO '{path}' (FORMAT parquet, COMPRESSION zstd);

-- name: duckdb_merge_files
COPY (SELECT * FROM read_parquet('{folder}/*.parquet') ORDER BY channel, time)
TO '{path}' (FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE 100000);

-- name: duckdb_raw
SELECT time, value, status FROM read_parquet('{folder}/*.parquet')
WHERE channel = {channel} AND time >= {first} AND time < {last}
ORDER BY time;

-- name: duckdb_by_minute
SELECT time // 60000000 * 60000000 AS minute, avg(value) AS mean FROM read_parquet('{folder}/*.parquet')
WHERE channel = {channel} AND time >= {first} AND time < {last} AND status < 2147483648
GROUP BY 1 ORDER BY 1;

-- name: iotdb_create_table
CREATE TABLE samples (channel STRING TAG, unit STRING ATTRIBUTE, value DOUBLE FIELD, status INT32 FIELD);

-- name: iotdb_raw
SELECT cast(time AS INT64) AS t, value, status FROM samples
WHERE channel = '{name}' AND time >= {first} AND time < {last} ORDER BY time;

-- name: iotdb_by_minute
SELECT cast(date_bin(1m, time) AS INT64) AS minute, avg(value) AS mean FROM samples
WHERE channel = '{name}' AND time >= {first} AND time < {last} AND status >= 0
GROUP BY 1 ORDER BY 1;
