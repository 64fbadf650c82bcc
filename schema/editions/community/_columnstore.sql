-- Days of samples_raw may be columnstored: one segment a channel, by time, so that a channel and interval are a few
-- batches of 1,000 samples. No policy: plant.compress_before does it.
ALTER TABLE plant.samples_raw SET (
    timescaledb.enable_columnstore = true,
    timescaledb.segmentby = 'channel_id',
    timescaledb.orderby = 'time'
);
