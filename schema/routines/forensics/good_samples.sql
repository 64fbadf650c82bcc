-- good_samples: the samples of one channel that are neither Bad nor out of range (NaN, 1e50 and more)
--
-- Not a question. It takes one channel, so that LATERAL joins of it are inlined and planned as one query.
--
-- Parameters
--   channel  int          id
--   since    timestamptz  from this moment on
--   until    timestamptz  before this moment
-- Cost: an index scan of the channel in the chunks of the interval, or of its packed hours.
-- Example: SELECT * FROM plant.good_samples(17, '2026-03-09 10:00+00', '2026-03-09 11:00+00');
CREATE OR REPLACE FUNCTION plant.good_samples(channel int, since timestamptz, until timestamptz)
RETURNS TABLE ("time" timestamptz, value float8)
LANGUAGE sql STABLE
AS $$
-- Tiny values become 0, and values that no sensor measures are left out: their squares would be out of range for float8,
-- which is an error.
SELECT s.time, CASE WHEN abs(s.value) < 1e-50 THEN 0 ELSE s.value END
FROM plant.samples_between(ARRAY[channel], since, until) AS s
WHERE s.status >= 0        -- Bad is negative
  AND abs(s.value) < 1e50  -- NaN is above infinity here
$$;
