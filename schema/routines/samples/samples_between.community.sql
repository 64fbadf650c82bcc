-- Community: otherwise as samples_between.apache.sql. Rows before packed_until are a separate branch; the view samples
-- explains why.
CREATE OR REPLACE FUNCTION plant.samples_between(channels int[], "from" timestamptz, "to" timestamptz)
RETURNS TABLE ("time" timestamptz, channel_id int, value float8, status int)
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT r.time, r.channel_id, r.value, r.status
    FROM plant.samples_raw AS r
    WHERE r.channel_id = ANY (channels) AND r.time >= "from" AND r.time < "to"
      AND r.time >= (SELECT u.until FROM plant.packed_until AS u)
    UNION ALL
    SELECT r.time, r.channel_id, r.value, r.status
    FROM plant.samples_raw AS r
    WHERE r.channel_id = ANY (channels) AND r.time >= "from" AND r.time < "to"
      AND r.time < (SELECT u.until FROM plant.packed_until AS u)
      AND (SELECT u.until > "from" FROM plant.packed_until AS u)
      AND (date_trunc('day', r.time, 'UTC') NOT IN (SELECT d.day FROM plant._packed_days() AS d (day))
           OR NOT plant.is_packed(r.channel_id, r.time))
    UNION ALL
    SELECT u.time, p.channel_id, u.value, u.status
    FROM plant.samples_packed AS p
    CROSS JOIN LATERAL plant.unpack(p, "from", "to") AS u
    WHERE p.channel_id = ANY (channels) AND p.hour >= plant.hour_of("from") AND p.hour < "to";
END;
COMMENT ON FUNCTION plant.samples_between(int[], timestamptz, timestamptz) IS
    'Samples of the channels with from <= time < to, each once; reads only their hours within the bounds.';

-- For all channels. The query is repeated on purpose: with the function above and the view built on this one, the
-- forensic questions about an undisturbed plant took 21 s instead of 5 s.
CREATE OR REPLACE FUNCTION plant.samples_between("from" timestamptz, "to" timestamptz)
RETURNS TABLE ("time" timestamptz, channel_id int, value float8, status int)
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT r.time, r.channel_id, r.value, r.status
    FROM plant.samples_raw AS r
    WHERE r.time >= "from" AND r.time < "to"
      AND r.time >= (SELECT u.until FROM plant.packed_until AS u)
    UNION ALL
    SELECT r.time, r.channel_id, r.value, r.status
    FROM plant.samples_raw AS r
    WHERE r.time >= "from" AND r.time < "to"
      AND r.time < (SELECT u.until FROM plant.packed_until AS u)
      AND (SELECT u.until > "from" FROM plant.packed_until AS u)
      AND (date_trunc('day', r.time, 'UTC') NOT IN (SELECT d.day FROM plant._packed_days() AS d (day))
           OR NOT plant.is_packed(r.channel_id, r.time))
    UNION ALL
    SELECT u.time, p.channel_id, u.value, u.status
    FROM plant.samples_packed AS p
    CROSS JOIN LATERAL plant.unpack(p, "from", "to") AS u
    WHERE p.hour >= plant.hour_of("from") AND p.hour < "to";
END;
COMMENT ON FUNCTION plant.samples_between(timestamptz, timestamptz) IS
    'Samples of all channels with from <= time < to, each once; reads only the hours within the bounds.';
