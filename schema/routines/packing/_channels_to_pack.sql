-- How many of the channels, from the first one, are packed in one transaction: about 200,000 samples of the hour. The
-- number of samples is estimated from a channel's first minute of the hour. If its hour is packed already and rows are
-- late, the packed samples count as well, because all of them are packed again.
CREATE OR REPLACE FUNCTION plant._channels_to_pack(channels int[], hour timestamptz) RETURNS int
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog
SET plan_cache_mode = force_custom_plan -- chunks are known to the planner by their times
SET jit = off
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
    target CONSTANT int := 200000; -- samples
    most   CONSTANT int := 1000;   -- channels
    until  CONSTANT timestamptz := plant.add_interval(hour, INTERVAL '1 hour');
BEGIN
    RETURN (
        SELECT greatest(1, count(*) FILTER (WHERE s.sum <= target))
        FROM (
            SELECT sum(greatest(60 * m.n, p.n)) OVER (ORDER BY c.place) AS sum
            FROM unnest(channels[:most]) WITH ORDINALITY AS c (id, place)
            LEFT JOIN LATERAL (SELECT r.time FROM plant.samples_raw AS r
                               WHERE r.channel_id = c.id AND r.time >= _channels_to_pack.hour AND r.time < until
                               ORDER BY r.time LIMIT 1) AS f ON true
            CROSS JOIN LATERAL (SELECT count(*) AS n FROM plant.samples_raw AS r
                                WHERE r.channel_id = c.id AND r.time >= _channels_to_pack.hour AND r.time < until
                                  AND r.time >= f.time
                                  AND r.time < plant.add_interval(f.time, INTERVAL '1 minute')) AS m
            LEFT JOIN LATERAL (SELECT o.n FROM plant.samples_packed AS o
                               WHERE o.channel_id = c.id AND o.hour = _channels_to_pack.hour) AS p ON true
        ) AS s
    );
END
$$;
