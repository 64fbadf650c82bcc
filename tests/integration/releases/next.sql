-- The rows that the recorded database of the next release has beside those of the last one: some of each table that
-- came since. `python -m tests.releases` removes them below this line.

-- rollup_increases_1m, _1h: counters that are reset within a minute
INSERT INTO plant.samples_raw (time, value, channel_id, status)
SELECT s.time, s.value, c.id, 0
FROM plant.channel AS c
CROSS JOIN (VALUES (timestamptz '2026-11-26 10:00:10+00', 5), ('2026-11-26 10:00:20+00', 3)) AS s (time, value)
WHERE c.kind = 'counter';
INSERT INTO plant.rollup_dirty (from_time, to_time, channels)
SELECT '2026-11-26 10:00:00+00', '2026-11-26 10:01:00+00', array_agg(c.id) FROM plant.channel AS c
WHERE c.kind = 'counter';
INSERT INTO plant.rollup_increases_1m
SELECT i.* FROM plant.increase_minutes_of(
    ARRAY(SELECT c.id FROM plant.channel AS c WHERE c.kind = 'counter'),
    '2026-11-26 10:00:00+00', '2026-11-26 10:01:00+00'
) AS i;
INSERT INTO plant.rollup_increases_1h (channel_id, bucket, increase)
SELECT i.channel_id, plant.hour_of(i.bucket), i.increase FROM plant.rollup_increases_1m AS i;
