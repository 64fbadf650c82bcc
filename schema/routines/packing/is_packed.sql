-- Whether a sample of the channel with this time is packed. Called only for rows before packed_until on days that have
-- packed hours: 0.2 ms each, whatever the number of days. A generic plan would open the chunks of all days.
CREATE OR REPLACE FUNCTION plant.is_packed(channel int, at timestamptz) RETURNS boolean
-- STABLE: it uses the snapshot of the calling query. The declared cost reflects that it is called for one row in a
-- million; with a higher one, the planner would use parallel workers and JIT for every query on samples_raw.
LANGUAGE plpgsql STABLE PARALLEL SAFE COST 1
AS $$
DECLARE
    hour plant.samples_packed;
BEGIN
    IF at >= coalesce((SELECT c.until FROM plant.packed_channel AS c WHERE c.channel_id = channel), '-infinity') THEN
        RETURN false;
    END IF;
    EXECUTE format('SELECT p.* FROM plant.samples_packed AS p WHERE p.channel_id = %s AND p.hour = %L',
                   channel, date_trunc('hour', at, 'UTC')) INTO hour;
    RETURN EXISTS (SELECT FROM plant.unpack(hour, at, at + INTERVAL '1 microsecond') AS u WHERE u.time = at);
END
$$;
