-- A view, because the sums of an hour are cheap and always up to date. TimescaleDB turns a condition on time_bucket
-- into one on chunks and key, but not one on date_trunc.
CREATE OR REPLACE VIEW plant.event_count_1h AS
SELECT public.time_bucket(INTERVAL '1 hour', c.bucket) AS bucket, c.type, c.channel_id, sum(c.n)::bigint AS n
FROM plant.event_count_1m AS c
GROUP BY 1, 2, 3;
COMMENT ON VIEW plant.event_count_1h IS 'event_count_1m by hour.';
GRANT SELECT ON plant.event_count_1h TO plant_owner;
