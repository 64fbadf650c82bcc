-- frozen_timestamps: channels whose source timestamp did not advance while new values arrived
--
-- Not a question. The table has one sample per channel and time: further values with that time are rejected, and the
-- first, second, fourth … of them is an event conflict. The state lasts from that event to the next sample.
--
-- Parameters
--   since  timestamptz  states that lasted until this moment or began later; conflicts of the week before are read
--   until  timestamptz  before this moment
-- Cost: a scan of the week's conflicts, and of the samples of the channels that have some.
-- Example: SELECT * FROM plant.frozen_timestamps('2026-03-09 10:00+00', '2026-03-09 11:00+00');
CREATE OR REPLACE FUNCTION plant.frozen_timestamps(since timestamptz, until timestamptz)
RETURNS TABLE (
    channel_id int,
    at         timestamptz, -- the repeated timestamp
    value      float8,      -- the value stored for it
    from_time  timestamptz, -- arrival of the first different value
    to_time    timestamptz, -- time of the next sample; infinity: none before until
    refused    bigint       -- number of rejected values, at least
)
LANGUAGE sql STABLE
AS $$
WITH
conflicts AS (
    SELECT e.channel_id, (e.detail ->> 'at')::timestamptz AS at, min(e.time) AS from_time,
           max((e.detail ->> 'refused')::bigint) AS refused, min(e.detail ->> 'kept_value')::float8 AS value
    FROM plant.event AS e
    WHERE e.type = 'conflict' AND e.text = 'time stands still' AND e.time >= since - INTERVAL '7 days' AND e.time < until
    GROUP BY 1, 2
)
SELECT s.channel_id, s.at, s.value, s.from_time, n.to_time, s.refused
FROM conflicts AS s
CROSS JOIN LATERAL (
    SELECT coalesce(plant.first_sample(s.channel_id, s.at + INTERVAL '1 microsecond', until), 'infinity') AS to_time
    OFFSET 0
) AS n
WHERE n.to_time > since AND n.to_time > s.from_time
$$;
