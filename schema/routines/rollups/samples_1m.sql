-- Minutes with their means. tables/rollups.sql describes the columns.
CREATE OR REPLACE VIEW plant.samples_1m AS
SELECT m.channel_id, m.bucket, m.n, m.n_good, m.min, m.max, m.avg, m.twa, m.seconds, m.first, m.last, m.first_time,
       m.last_time, m.holds
FROM plant.means_between(INTERVAL '1 minute', '-infinity', 'infinity') AS m;
COMMENT ON VIEW plant.samples_1m IS
    'Minutes: number of samples, statistics of values that are neither Bad nor NaN, and the time-weighted average '
    'over the seconds in which the value is known. A minute in which a value only holds has n = 0. A condition on '
    'bucket does not limit the days that are read, one on channel_id does; if the times are known, '
    'plant.means_between reads less. The newest minutes, and those in rollup_dirty, are not computed yet.';
