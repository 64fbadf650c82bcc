-- Counts with the names of channels and sources.
CREATE OR REPLACE VIEW plant.event_count_named AS
SELECT c.bucket, c.type, h.name AS channel, s.name AS source, c.n, c.channel_id
FROM plant.event_count_1m AS c
LEFT JOIN plant.channel AS h ON h.id = c.channel_id
LEFT JOIN plant.source AS s ON s.id = h.source_id;
COMMENT ON VIEW plant.event_count_named IS 'event_count_1m with the names of channel and source. NULL: no channel.';
GRANT SELECT ON plant.event_count_named TO plant_owner;
