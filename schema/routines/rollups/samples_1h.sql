-- Hours with their means.
CREATE OR REPLACE VIEW plant.samples_1h AS
SELECT m.channel_id, m.bucket, m.n, m.n_good, m.min, m.max, m.avg, m.twa, m.seconds, m.first, m.last, m.first_time,
       m.last_time, m.holds
FROM plant.means_between(INTERVAL '1 hour', '-infinity', 'infinity') AS m;
COMMENT ON VIEW plant.samples_1h IS 'Hours, with the columns of samples_1m.';
