-- Enables the columnstore on samples_raw: one segment per channel, ordered by time, so that reading a channel over an
-- interval takes a few batches of 1,000 samples. There is no policy:
-- ops/maintenance/packing.py has the chunks converted.
ALTER TABLE plant.samples_raw SET (
    timescaledb.enable_columnstore = true,
    timescaledb.segmentby = 'channel_id',
    timescaledb.orderby = 'time'
);
