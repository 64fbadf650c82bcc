-- The expected interval between samples of a channel. Polled channels have one; channels that report changes do not.
CREATE OR REPLACE VIEW plant.channel_interval AS
SELECT c.id AS channel_id, c.source_id, (c.attributes ->> 'expected_interval')::float8 AS seconds
FROM plant.channel AS c;
GRANT SELECT ON plant.channel_interval TO plant_owner;
