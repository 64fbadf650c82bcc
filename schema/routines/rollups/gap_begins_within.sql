-- Whether a recorded gap of the channel, or of its source, begins between two times.
CREATE OR REPLACE FUNCTION plant.gap_begins_within(channel int, "from" timestamptz, "to" timestamptz) RETURNS boolean
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT EXISTS (SELECT FROM plant.gap AS g
                   WHERE g.source_id = c.source_id AND g.channel_id = c.id AND g.from_time >= "from"
                     AND g.from_time < "to"
                     AND g.to_time IS DISTINCT FROM g.from_time AND g.backfilled_at IS NULL)
        OR EXISTS (SELECT FROM plant.gap AS g
                   WHERE g.source_id = c.source_id AND g.channel_id IS NULL AND g.from_time >= "from"
                     AND g.from_time < "to"
                     AND g.to_time IS DISTINCT FROM g.from_time AND g.backfilled_at IS NULL)
    FROM plant.channel AS c
    WHERE c.id = channel;
END;
