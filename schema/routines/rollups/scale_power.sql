-- The power of ten that a channel's range reaches up to; NULL without a range. Channels of one power share a chart.
CREATE OR REPLACE FUNCTION plant.scale_power(range_lo float8, range_hi float8) RETURNS int
LANGUAGE sql IMMUTABLE
AS $$
SELECT CASE WHEN range_hi > range_lo THEN ceil(log(greatest(abs(range_lo), abs(range_hi))))::int END
$$;
