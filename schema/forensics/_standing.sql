-- standing: channels whose source timestamp stood still while other values came
--
-- Not a question. The table has one sample of a channel and time: what comes with that time again is refused, which is
-- an event conflict at the first, second, fourth … of them. Where one is known of, it goes on until the next sample.
--
-- Parameters
--   since  timestamptz  what was still so at this moment, and was said in the week before it or since
--   until  timestamptz  before this moment
-- Cost: a look at the week's conflicts, and at the samples of the channels that have some.
-- Example: SELECT * FROM plant.standing('2026-03-09 10:00+00', '2026-03-09 11:00+00');
CREATE OR REPLACE FUNCTION plant.standing(since timestamptz, until timestamptz)
RETURNS TABLE (
    channel_id int,
    at         timestamptz, -- the time that stood still
    value      float8,      -- what is kept of it
    from_time  timestamptz, -- when the first other value came
    to_time    timestamptz, -- of the next sample; infinity: there is none before until
    refused    bigint       -- how many values were, at least
)
LANGUAGE sql STABLE
AS $$
WITH
said AS (
    SELECT e.channel_id, (e.detail ->> 'at')::timestamptz AS at, min(e.time) AS from_time,
           max((e.detail ->> 'refused')::bigint) AS refused, min(e.detail ->> 'kept_value')::float8 AS value
    FROM plant.event AS e
    WHERE e.type = 'conflict' AND e.text = 'time stands still' AND e.time >= since - INTERVAL '7 days' AND e.time < until
    GROUP BY 1, 2
)
SELECT s.channel_id, s.at, s.value, s.from_time, n.to_time, s.refused
FROM said AS s
CROSS JOIN LATERAL (
    SELECT coalesce(plant.first_sample(s.channel_id, s.at + INTERVAL '1 microsecond', until), 'infinity') AS to_time
    OFFSET 0
) AS n
WHERE n.to_time > since AND n.to_time > s.from_time
$$;
