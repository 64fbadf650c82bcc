-- points_of: the number of points of a given length in an interval
--
-- Parameters
--   since   timestamptz  from this moment on
--   until   timestamptz  before this moment
--   length  float8       of a point, in milliseconds
-- Cost: none.
-- Example: SELECT plant.points_of('2026-03-09 10:00+00', '2026-03-09 11:00+00', 10000);
CREATE OR REPLACE FUNCTION plant.points_of(since timestamptz, until timestamptz, length float8) RETURNS int
LANGUAGE sql IMMUTABLE
AS $$
SELECT least(5000, greatest(1, ceil(extract(epoch FROM until - since) * 1000 / length)))::int
$$;
