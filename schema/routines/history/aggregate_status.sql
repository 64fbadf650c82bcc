-- The StatusCode of an aggregate (OPC 10000-13, 5.4.3.2), with the bits Calculated and, for a partial interval, Partial.
-- whole, known, good and bad are durations, or numbers of values: all of the interval, those with a value, those that count
-- as Good and as Bad. Without percentages: Good if all is Good, else Uncertain. Both percentages can be reached only where
-- they add up to 100; then the one for Good counts (4.2.1.2).
CREATE OR REPLACE FUNCTION plant.aggregate_status(
    whole float8, known float8, good float8, bad float8, partial boolean, percent_data_bad int, percent_data_good int
) RETURNS int
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN CASE WHEN coalesce(known, 0) <= 0 THEN -2137325568 -- Bad_NoData, 0x809B0000
                ELSE CASE WHEN good >= whole THEN 0
                          WHEN percent_data_good IS NULL THEN 1084489728 -- Uncertain_DataSubNormal, 0x40A40000
                          WHEN good * 100 >= percent_data_good * whole THEN 0
                          WHEN bad * 100 >= percent_data_bad * whole THEN -2147483648
                          ELSE 1084489728 END
                     | 1025 -- data value, Calculated
                     | CASE WHEN partial THEN 4 ELSE 0 END END;
