-- Hours with their means.
CREATE OR REPLACE VIEW plant.samples_1h AS
SELECT r.channel_id, r.bucket, r.n, r.n_good, r.min, r.max, plant.rollup_mean(r.sum, r.n_good, r.min, r.max) AS avg,
       r.area / nullif(r.known / 1e6::float8, 0) AS twa, r.known / 1e6::float8 AS seconds,
       r.first, r.last, r.first_time, r.last_time, r.holds
FROM plant.rollup_1h AS r
UNION ALL
SELECT h.* FROM plant.held_means(INTERVAL '1 hour', '-infinity', 'infinity') AS h;
COMMENT ON VIEW plant.samples_1h IS 'Hours, with the columns of samples_1m.';
