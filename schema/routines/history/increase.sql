-- By how much a counter has increased by interval. Resets count as Prometheus has it (counter_increase.sql), but nothing is
-- extrapolated: the increase from one sample to the next belongs to the interval of the latter, so that the intervals add up,
-- across gaps, too. docs/sql.md describes the parameters.
CREATE OR REPLACE FUNCTION plant.increase(
    channel int, "from" timestamptz, "to" timestamptz, step interval DEFAULT NULL,
    treat_uncertain_as_bad boolean DEFAULT true, percent_data_bad int DEFAULT 100, percent_data_good int DEFAULT 100
)
RETURNS TABLE ("time" timestamptz, value float8, status int)
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT c.time, c.increase, c.status
    FROM (SELECT plant._wraps_at(channel) AS wraps_at OFFSET 0) AS w -- an error even if there are no samples
    CROSS JOIN LATERAL plant._changes(channel, "from", "to", step, treat_uncertain_as_bad, percent_data_bad, percent_data_good,
                                      w.wraps_at) AS c
    ORDER BY c.time;
END;
COMMENT ON FUNCTION plant.increase IS 'By how much a counter has increased by interval, whatever resets and wraps there were.';
