-- Start times of recorded gaps, by channel, without those that were backfilled or retracted.
CREATE OR REPLACE FUNCTION plant.gap_begins(channels int[], "from" timestamptz, "to" timestamptz)
RETURNS TABLE (channel_id int, begins timestamptz[])
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT g.channel_id, array_agg(g.from_time)
    FROM plant.gap_channel AS g
    WHERE g.from_time >= "from" AND g.from_time < "to" AND g.backfilled_at IS NULL AND g.channel_id = ANY (channels)
    GROUP BY g.channel_id;
END;
