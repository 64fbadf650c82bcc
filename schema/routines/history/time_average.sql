-- The time-weighted average by interval: TimeAverage of OPC 10000-13 (5.4.3.6), and with simple bounds TimeAverage2
-- (5.4.3.7). docs/sql.md describes the parameters.
CREATE OR REPLACE FUNCTION plant.time_average(
    channel int, "from" timestamptz, "to" timestamptz, step interval DEFAULT NULL, stepped boolean DEFAULT NULL,
    simple_bounds boolean DEFAULT false, treat_uncertain_as_bad boolean DEFAULT true, percent_data_bad int DEFAULT 100,
    percent_data_good int DEFAULT 100, use_sloped_extrapolation boolean DEFAULT false
)
RETURNS TABLE ("time" timestamptz, value float8, status int)
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT a.time, CASE WHEN a.status >= 0 THEN a.area / a.seconds END, a.status
    FROM plant._integrals(channel, "from", "to", step, stepped, simple_bounds, treat_uncertain_as_bad, percent_data_bad,
                          percent_data_good, use_sloped_extrapolation) AS a;
END;
COMMENT ON FUNCTION plant.time_average IS 'Time-weighted average of a channel by interval: TimeAverage of OPC UA; with simple_bounds TimeAverage2.';
