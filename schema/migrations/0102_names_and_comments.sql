-- Routines that have another name now, as in 0101.
INSERT INTO plant.setting (key, value)
SELECT 'routine/' || n.name, ''
FROM unnest(ARRAY['_facts', 'breaks', 'course', 'later', 'minute_course', 'not_dropped', 'oldest_in', 'retained']) AS n (name)
ON CONFLICT (key) DO NOTHING;

-- Comments of tables in plainer words.
COMMENT ON TABLE plant.source IS 'An endpoint that channels are read from. state: the last one that its collector reported.';
COMMENT ON COLUMN plant.source.retired_at IS 'When the configuration of its installation stopped listing it; its samples stay.';
COMMENT ON TABLE plant.channel IS 'A tag. name is a path with slashes: plant area, unit, quantity. Ids are never reused.';
COMMENT ON COLUMN plant.channel.configured_at IS 'When the channel was first configured; NULL: before this was recorded.';
COMMENT ON COLUMN plant.channel.retirements IS 'Periods in which it was retired before it returned: no samples are expected from these.';
COMMENT ON TABLE plant.channel_version IS 'The definitions of a channel over time: valid for samples with valid_from <= time < valid_to. The first version is valid from -infinity, the newest to infinity; a version without valid_from is not in use yet, or never was.';
COMMENT ON COLUMN plant.channel_version.collected IS 'Whether the collector determines from when it is valid; else this is the time of the change.';
COMMENT ON TABLE plant.ingest_batch IS 'One row per committed spool batch: evidence of arrival, lag, and the key that makes a replay a no-op.';
COMMENT ON COLUMN plant.ingest_batch.sequence IS 'Sequence number of the batch in its spool. Negative: derived from the content that a gateway sent, so that a repetition is recognised. A row of kind counts must be kept as long as its batch may be sent again: only this row shows that its increments are already in event_count_1m.';
COMMENT ON TABLE plant.gap IS 'An interval with known missing samples. channel_id NULL: the whole source. to_time NULL: still open.';
COMMENT ON COLUMN plant.gap.to_time IS 'Time of the first sample after the gap. NULL: still open. Equal to from_time: nothing was missing after all.';
COMMENT ON COLUMN plant.gap.revision IS 'When its collector reported this (µs since 1970); a later report replaces an earlier one.';
COMMENT ON TABLE plant.quarantine IS 'Rows that were rejected instead of stored as samples, events or gaps, and the reason. id is a hash of the row: a replay is a no-op.';
COMMENT ON COLUMN plant.quarantine.time_us IS 'Time of the sample in µs since 1970, which may be outside the range of timestamptz.';
COMMENT ON COLUMN plant.quarantine.detail IS 'Events and gaps: the whole row. Samples: the database''s error message, if it rejected them.';
COMMENT ON TABLE plant.installation IS 'A state folder that registers in this database, and the name of its plant.';
COMMENT ON TABLE plant.presence IS 'The running state folder of an installation. Updated every 10 s.';
COMMENT ON COLUMN plant.presence.folder IS 'Identity of the folder: its inode, and the last boot of its host. A copy has a different one.';
COMMENT ON TABLE plant.retention_class IS 'The configured retention of the channels of a class; NULL: forever. Data without a channel belongs to class default.';
COMMENT ON TABLE plant.dropped IS 'Data of the class and kind (raw, 1m, 1h, event) before until may have been dropped by retention.';
COMMENT ON TABLE plant.job_run IS 'Runs of maintenance jobs. outcome NULL: running, or killed and not retried yet.';
COMMENT ON TABLE plant.rollup_dirty IS 'Buckets to recompute, with from_time <= begin < to_time, on whole minutes.';
COMMENT ON COLUMN plant.rollup_dirty.onward IS 'The value carried out of them has changed, though the last sample may be the same: a gap.';
COMMENT ON COLUMN plant.rollup_dirty.open_since IS 'Since when a writer holds this minute open; NULL: to be recomputed from samples.';
COMMENT ON TABLE plant.rollup_closed IS 'The minute that a writer closed last. Closing and recomputing minutes locks this row.';
COMMENT ON COLUMN plant.rollup_closed.minutes IS 'Number of minutes that writers have closed with rows of their own.';
COMMENT ON COLUMN plant.rollup_closed.rows IS 'Rows of rollup_1m that they wrote and that need not be recomputed.';
COMMENT ON TABLE plant.rollup_1m IS 'Stored minutes. Read samples_1m, or minutes_between if channels and times are known.';
COMMENT ON COLUMN plant.rollup_1m.known IS 'µs in which the value is known.';
COMMENT ON COLUMN plant.rollup_1m.area IS 'Integral of the value over the known time, in value × seconds.';
COMMENT ON TABLE plant.rollup_1h IS 'Stored hours. Read samples_1h.';
COMMENT ON TABLE plant.rollup_1m_packed IS 'Minutes of closed days, one row per channel and day (UTC). Read samples_1m or minutes_between.';
COMMENT ON COLUMN plant.rollup_1m_packed.minute_ IS 'The minutes of the day (from 0) that exist; NULL: all 1440. Likewise for the other arrays: if NULL, all minutes have the value of the column without underscore. first_at and last_at: µs since the minute.';
COMMENT ON TABLE plant.samples_raw IS 'The table that the writer fills. Read the view samples.';
COMMENT ON TABLE plant.samples_packed IS 'One row per channel and hour; schema/tables/samples.sql describes the columns. Read plant.samples or plant.samples_between.';
COMMENT ON TABLE plant.packed_until IS 'Rows of samples_raw before this may be late or replayed, and are compared with packed samples.';
COMMENT ON TABLE plant.packed_channel IS 'Like packed_until, by channel: while an hour is being packed, rows of channels that are not packed yet are not late.';
COMMENT ON COLUMN plant.rollup_1h.known IS 'µs in which the value is known.';
COMMENT ON COLUMN plant.rollup_1h.area IS 'Integral of the value over the known time, in value × seconds.';
