-- A push source creates the channels that its gateway sends and that nobody configured.

GRANT INSERT (name, source_id, address, kind) ON plant.channel TO plant_ingest;
COMMENT ON COLUMN plant.channel.address IS 'OPC UA: node id. Modbus: table:register, from 0. Push: what the source''s template makes of line and field; equal to name where the source created the channel.';
