-- resampled: channels on a common time grid, for comparison
--
-- Not a question. A bucket has the mean of its samples; one without samples has the last value before it, because
-- many channels report changes only; one that is entirely within a gap that was not backfilled has no row.
--
-- Parameters
--   patterns  text[]       names or patterns of channels; NULL: all
--   since     timestamptz  first bucket begins here
--   until     timestamptz  end (never later than now, or than a channel's retirement)
--   step      interval     length of a bucket
--   carry     interval     how far before since to look for a last value
-- Cost: one pass over the samples of the channels from since - carry to until, and one row per channel and bucket.
-- Example: SELECT * FROM plant.resampled('{boilerhouse/*}', '2026-03-09 10:00+00', '2026-03-09 11:00+00', '10 s');
CREATE OR REPLACE FUNCTION plant.resampled(
    patterns text[], since timestamptz, until timestamptz, step interval, carry interval DEFAULT '1 hour'
)
RETURNS TABLE (channel_id int, bucket timestamptz, value float8)
LANGUAGE sql STABLE
AS $$
WITH
wanted AS (
    SELECT c.channel_id, c.ends FROM plant.channels_like(patterns) AS c WHERE c.kind <> 'text'
),
got AS (
    SELECT w.channel_id, date_bin(step, s.time, since) AS bucket, avg(s.value) AS mean,
           public.last(s.value, s.time) AS last
    FROM wanted AS w
    CROSS JOIN LATERAL plant.good_samples(w.channel_id, since - carry, until) AS s
    GROUP BY w.channel_id, date_bin(step, s.time, since)
),
grid AS (
    SELECT w.channel_id, g.bucket
    FROM wanted AS w
    CROSS JOIN generate_series(since, least(until, now(), w.ends) - INTERVAL '1 microsecond', step, 'UTC') AS g (bucket)
),
-- Each bucket with samples begins a block, which lasts up to the next one.
blocks AS (
    SELECT channel_id, bucket, o.mean, o.last, count(o.last) OVER (PARTITION BY channel_id ORDER BY bucket) AS block
    FROM grid AS g
    FULL JOIN got AS o USING (channel_id, bucket)
),
carried AS (
    SELECT b.channel_id, b.bucket, b.mean,
           first_value(b.last) OVER (PARTITION BY b.channel_id, b.block ORDER BY b.bucket) AS held
    FROM blocks AS b
),
missing AS (
    SELECT g.channel_id, g.from_time, coalesce(g.to_time, 'infinity') AS to_time
    FROM plant.gap_channel AS g
    WHERE g.from_time < until AND coalesce(g.to_time, 'infinity') > since AND g.backfilled_at IS NULL
)
SELECT c.channel_id, c.bucket, coalesce(c.mean, c.held)
FROM carried AS c
WHERE c.bucket >= since AND c.held IS NOT NULL
  AND (c.mean IS NOT NULL
       OR NOT EXISTS (SELECT FROM missing AS m
                      WHERE m.channel_id = c.channel_id AND m.from_time <= c.bucket AND m.to_time >= c.bucket + step))
$$;
