-- Extend ranges to multiples of a width.
CREATE OR REPLACE FUNCTION plant.widen_ranges(ranges tstzmultirange, width interval) RETURNS tstzmultirange
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN (SELECT coalesce(range_agg(tstzrange(
                date_bin(width, lower(r), TIMESTAMPTZ '2000-01-01 00:00:00+00'),
                CASE WHEN date_bin(width, upper(r), TIMESTAMPTZ '2000-01-01 00:00:00+00') = upper(r) THEN upper(r)
                     ELSE date_bin(width, upper(r), TIMESTAMPTZ '2000-01-01 00:00:00+00') + width END)), '{}')
            FROM unnest(ranges) AS r);
