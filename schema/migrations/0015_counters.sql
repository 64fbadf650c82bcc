-- How often things happened, by the minute: alarms, changes of state, samples that were not Good, pulses.

-- The writer adds to the newest minutes again and again. Half of each page is left free, so that a row's next version
-- finds room beside it and no index is touched: 99.8 % of the updates are such, and 60 updates of each row leave a
-- fifth of the bytes (MEASURED). A dictionary with numbers in place of the type's name would be 7 % faster, which is
-- within the noise; names sort by code points, as the writer sorts them.
CREATE TABLE plant.event_count_1m (
    bucket     timestamptz NOT NULL,
    type       text COLLATE "C" NOT NULL,
    channel_id int         NOT NULL,
    n          bigint      NOT NULL,
    PRIMARY KEY (bucket, type, channel_id)
) WITH (fillfactor = 50);
-- Seven days a chunk, as of plant.event, whose counts these are for the most part: a thousand types that all happen in
-- each minute make some 10 million rows in that time, and a plant's usual alarms not a hundredth of it. What is
-- written is at the end of the key, whatever the chunk's length.
SELECT public.create_hypertable('plant.event_count_1m', public.by_range('bucket', INTERVAL '7 days'),
                                create_default_indexes => false);
CREATE INDEX event_count_1m_type ON plant.event_count_1m (type, channel_id, bucket DESC);
COMMENT ON TABLE plant.event_count_1m IS 'How often something happened in the minute that begins at bucket: each event by its type, samples that were not Good (bad_quality, uncertain_quality), and what gateways counted (measurement.field). Each once, however often it was sent.';
COMMENT ON COLUMN plant.event_count_1m.channel_id IS '0: of no channel.';

GRANT SELECT ON plant.event_count_1m TO plant_reader;
GRANT SELECT, INSERT, UPDATE (n) ON plant.event_count_1m TO plant_ingest;
GRANT ALL ON plant.event_count_1m TO plant_owner;

-- Hours are few rows to add up, and always right. time_bucket, because TimescaleDB makes of a condition on it one on the
-- chunks and the key; of date_trunc it would not.
CREATE VIEW plant.event_count_1h AS
SELECT public.time_bucket(INTERVAL '1 hour', c.bucket) AS bucket, c.type, c.channel_id, sum(c.n)::bigint AS n
FROM plant.event_count_1m AS c
GROUP BY 1, 2, 3;
COMMENT ON VIEW plant.event_count_1h IS 'event_count_1m by the hour.';

CREATE VIEW plant.event_count_named AS
SELECT c.bucket, c.type, h.name AS channel, s.name AS source, c.n, c.channel_id
FROM plant.event_count_1m AS c
LEFT JOIN plant.channel AS h ON h.id = c.channel_id
LEFT JOIN plant.source AS s ON s.id = h.source_id;
COMMENT ON VIEW plant.event_count_named IS 'event_count_1m with names, for people; NULL: of no channel.';
GRANT SELECT ON plant.event_count_1h, plant.event_count_named TO plant_reader, plant_ingest, plant_owner;

ALTER TABLE plant.ingest_batch DROP CONSTRAINT ingest_batch_kind_check;
ALTER TABLE plant.ingest_batch
    ADD CONSTRAINT ingest_batch_kind_check CHECK (kind IN ('samples', 'events', 'gaps', 'counts'));
COMMENT ON COLUMN plant.ingest_batch.sequence IS 'Of the batch in its spool; negative: made of what a gateway sent, so that the same sent again is refused. A row of kind counts must stay as long as its batch may come again: nothing else tells that its increments are in event_count_1m already.';
