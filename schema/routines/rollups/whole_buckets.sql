-- The multiples of a width within a range.
CREATE OR REPLACE FUNCTION plant.whole_buckets(range tstzrange, width interval) RETURNS tstzmultirange
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN tstzmultirange(range) - plant.widen_ranges(
        tstzmultirange(tstzrange(lower(range) - INTERVAL '1 microsecond', lower(range)),
                       tstzrange(upper(range), upper(range) + INTERVAL '1 microsecond')), width);
