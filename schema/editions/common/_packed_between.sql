-- The packed samples with from <= time < to, of some channels and of all; only their hours within the bounds are read.
-- A query that calls it in FROM has its text in place of it.
CREATE OR REPLACE FUNCTION plant._packed_between(channels int[], "from" timestamptz, "to" timestamptz)
RETURNS TABLE ("time" timestamptz, channel_id int, value float8, status int)
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT u.time, p.channel_id, u.value, u.status
    FROM plant.samples_packed AS p
    CROSS JOIN LATERAL plant.unpack(p, "from", "to") AS u
    WHERE p.channel_id = ANY (channels) AND p.hour >= date_trunc('hour', "from", 'UTC') AND p.hour < "to";
END;

CREATE OR REPLACE FUNCTION plant._packed_between("from" timestamptz, "to" timestamptz)
RETURNS TABLE ("time" timestamptz, channel_id int, value float8, status int)
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT u.time, p.channel_id, u.value, u.status
    FROM plant.samples_packed AS p
    CROSS JOIN LATERAL plant.unpack(p, "from", "to") AS u
    WHERE p.hour >= date_trunc('hour', "from", 'UTC') AND p.hour < "to";
END;
