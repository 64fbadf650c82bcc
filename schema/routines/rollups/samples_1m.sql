-- Minutes with their means. tables/rollups.sql describes the columns.
CREATE OR REPLACE VIEW plant.samples_1m AS
SELECT r.channel_id, r.bucket, r.n, r.n_good, r.min, r.max, plant.rollup_mean(r.sum, r.n_good, r.min, r.max) AS avg,
       r.area / nullif(r.known / 1e6::float8, 0) AS twa, r.known / 1e6::float8 AS seconds,
       r.first, r.last, r.first_time, r.last_time, r.holds
FROM plant.rollup_minutes AS r
UNION ALL
SELECT h.* FROM plant.held_means(INTERVAL '1 minute', '-infinity', 'infinity') AS h;
COMMENT ON VIEW plant.samples_1m IS 'Minutes: number of samples, statistics of values that are neither Bad nor NaN, and the time-weighted average over the seconds in which the value is known. A minute in which a value only holds has n = 0. A condition on bucket does not limit the days that are read, one on channel_id does; if the times are known, plant.minutes_between reads less. The newest minutes, and those in rollup_dirty, are not computed yet.';
