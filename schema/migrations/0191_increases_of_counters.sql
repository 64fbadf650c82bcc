-- Rollups of counters have their increases. What is stored is recomputed by maintenance, newest first: of minutes whose
-- samples are not in the database any more, a reset within the minute stays unknown.
-- Counters: the increase within a bucket, from its first to its last reading, where one is lower than that before it.
-- Of the other buckets it is last - first, so nothing is stored. The increase from one bucket to the next is that of
-- the later one, which the views derive (routines/rollups/increases_between.sql): so no bucket depends on another.
CREATE TABLE plant.rollup_increases_1m (
    channel_id int         NOT NULL,
    bucket     timestamptz NOT NULL,
    increase   float8      NOT NULL,
    PRIMARY KEY (channel_id, bucket)
);
SELECT public.create_hypertable('plant.rollup_increases_1m', public.by_range('bucket', INTERVAL '30 days'),
                                create_default_indexes => false);
CREATE TABLE plant.rollup_increases_1h (LIKE plant.rollup_increases_1m INCLUDING ALL);
SELECT public.create_hypertable('plant.rollup_increases_1h', public.by_range('bucket', INTERVAL '30 days'),
                                create_default_indexes => false);
GRANT INSERT ON plant.rollup_increases_1m TO plant_ingest;
GRANT ALL ON plant.rollup_increases_1m, plant.rollup_increases_1h TO plant_owner;

INSERT INTO plant.rollup_dirty (from_time, to_time, channels)
SELECT k.range_start, least(k.range_end, date_bin('1 minute', now(), '2000-01-01 00:00:00+00')), c.ids
FROM timescaledb_information.chunks AS k
CROSS JOIN (SELECT array_agg(c.id) AS ids FROM plant.channel AS c WHERE c.kind = 'counter') AS c
WHERE k.hypertable_schema = 'plant' AND k.hypertable_name IN ('samples_raw', 'samples_packed')
  AND k.range_start < date_bin('1 minute', now(), '2000-01-01 00:00:00+00') AND c.ids IS NOT NULL;
