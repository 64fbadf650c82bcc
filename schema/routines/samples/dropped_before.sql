-- What minutes (level 2) and hours (3) know of the last sample before a time, if retention may have dropped samples
-- after since: the last value if it still held at the end of the last whole one of them, else that end without a value,
-- as Bad.
CREATE OR REPLACE FUNCTION plant.dropped_before(channel int, since timestamptz, before timestamptz)
RETURNS TABLE ("time" timestamptz, value float8, status int, minute timestamptz, level int)
LANGUAGE plpgsql STABLE PARALLEL SAFE ROWS 1
SET search_path = pg_catalog
AS $$
BEGIN
    IF (since < plant.dropped_until(channel, 'raw')) IS NOT TRUE THEN
        RETURN;
    END IF;
    RETURN QUERY
    SELECT CASE WHEN m.holds THEN m.last_time ELSE m.bucket + INTERVAL '1 minute' END,
           CASE WHEN m.holds THEN m.last END, CASE WHEN m.holds THEN 0 ELSE -2147483648 END, m.bucket, 2
    FROM plant.minutes_between(ARRAY[channel], since, plant.minute_of(before)) AS m
    ORDER BY m.bucket DESC LIMIT 1;
    RETURN QUERY
    SELECT CASE WHEN o.holds THEN o.last_time ELSE o.bucket + INTERVAL '1 hour' END, CASE WHEN o.holds THEN o.last END,
           CASE WHEN o.holds THEN 0 ELSE -2147483648 END,
           CASE WHEN o.holds THEN plant.minute_of(o.last_time) ELSE o.bucket + INTERVAL '59 minutes' END, 3
    FROM plant.rollup_1h AS o
    WHERE o.channel_id = channel AND o.bucket >= since AND o.bucket < plant.hour_of(before)
    ORDER BY o.bucket DESC LIMIT 1;
END
$$;
