-- The last sample before a time, if it is not older than since; or what minutes and hours know of it, if retention
-- dropped it and the session was not given it.
CREATE OR REPLACE FUNCTION plant.held_before(channel int, since timestamptz, before timestamptz)
RETURNS TABLE ("time" timestamptz, value float8, status int)
LANGUAGE sql STABLE PARALLEL SAFE ROWS 1
BEGIN ATOMIC
    SELECT h.time, h.value, h.status
    FROM (
        SELECT l.time, l.value, l.status, plant.minute_of(l.time) AS minute, 1 AS level
        FROM plant.last_before(channel, since, before) AS l
        UNION ALL
        SELECT a.time, a.value, a.status, plant.minute_of(a.time), 1
        FROM plant.archived_samples(channel, since, before) AS a
        UNION ALL
        SELECT d.time, d.value, d.status, d.minute, d.level FROM plant.dropped_before(channel, since, before) AS d
    ) AS h
    ORDER BY h.minute DESC, h.level, h.time DESC LIMIT 1;
END;
