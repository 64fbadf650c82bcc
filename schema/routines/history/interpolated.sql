-- The value of a channel at the start of each interval: Interpolative of OPC 10000-13 (5.4.3.4). The status of a sample is
-- its own; other values have the bit Interpolated. docs/sql.md describes the parameters.
CREATE OR REPLACE FUNCTION plant.interpolated(
    channel int, "from" timestamptz, "to" timestamptz, step interval DEFAULT NULL, stepped boolean DEFAULT NULL,
    simple_bounds boolean DEFAULT false, treat_uncertain_as_bad boolean DEFAULT true,
    use_sloped_extrapolation boolean DEFAULT false
)
RETURNS TABLE ("time" timestamptz, value float8, status int)
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT i.time, p.first,
           CASE WHEN p.first IS NULL THEN -2137325568 -- Bad_NoData, 0x809B0000
                WHEN p.status IS NOT NULL THEN p.status
                WHEN p.good_until > p.begins THEN 1026 -- Good, a data value, Interpolated
                ELSE 1084490754 END                    -- Uncertain_DataSubNormal with the same bits, 0x40A40402
    FROM plant._intervals("from", "to", step) AS i
    LEFT JOIN plant._pieces(channel, "from", "to", step, stepped, simple_bounds, treat_uncertain_as_bad,
                            use_sloped_extrapolation) AS p ON p.bucket = i.bucket AND p.begins = i.at
    ORDER BY i.bucket;
END;
COMMENT ON FUNCTION plant.interpolated IS 'Value of a channel at the start of each interval: Interpolative of OPC UA.';
