-- Values too large to be summed, infinities among them, do not hold any more: minutes that have some are recomputed, and with them
-- their hours.
INSERT INTO plant.rollup_dirty (from_time, to_time, channels)
SELECT r.bucket, r.bucket + INTERVAL '1 hour', array_agg(DISTINCT r.channel_id)
FROM (
    SELECT h.channel_id, h.bucket FROM plant.rollup_1h AS h WHERE h.max > 1e280 OR h.min < -1e280
    UNION ALL
    SELECT m.channel_id, date_bin('1 hour', m.bucket, '2000-01-01 00:00:00+00')
    FROM plant.rollup_1m AS m
    WHERE m.max > 1e280 OR m.min < -1e280
) AS r
GROUP BY r.bucket;
