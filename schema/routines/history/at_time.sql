-- The values of a channel at given times, in their order: ReadAtTimeDetails of OPC 10000-11 (6.5.5.2). Each time is looked
-- up by itself: for times close together, interpolated is cheaper. docs/sql.md describes the parameters.
CREATE OR REPLACE FUNCTION plant.at_time(
    channel int, times timestamptz[], stepped boolean DEFAULT NULL, simple_bounds boolean DEFAULT false,
    treat_uncertain_as_bad boolean DEFAULT true, use_sloped_extrapolation boolean DEFAULT false
)
RETURNS TABLE ("time" timestamptz, value float8, status int)
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT t.t, v.value, v.status
    FROM unnest(times) WITH ORDINALITY AS t (t, place)
    CROSS JOIN LATERAL plant.interpolated(channel, t.t, t.t + INTERVAL '1 microsecond', NULL, stepped, simple_bounds,
                                          treat_uncertain_as_bad, use_sloped_extrapolation) AS v
    ORDER BY t.place;
END;
COMMENT ON FUNCTION plant.at_time IS 'Values of a channel at given times, in their order: ReadAtTime of OPC UA.';
