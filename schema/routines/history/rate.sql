-- The rate of a counter by interval, in units per second: its increase by the time from the first sample of all on, if that is
-- in the interval, to the end. docs/sql.md describes the parameters.
CREATE OR REPLACE FUNCTION plant.rate(
    channel int, "from" timestamptz, "to" timestamptz, step interval DEFAULT NULL,
    treat_uncertain_as_bad boolean DEFAULT true, percent_data_bad int DEFAULT 100, percent_data_good int DEFAULT 100
)
RETURNS TABLE ("time" timestamptz, value float8, status int)
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT c.time, c.increase / nullif(greatest(c.seconds, 0), 0), c.status
    FROM (SELECT plant._wraps_at(channel) AS wraps_at OFFSET 0) AS w -- an error even if there are no samples
    CROSS JOIN LATERAL plant._changes(channel, "from", "to", step, treat_uncertain_as_bad, percent_data_bad, percent_data_good,
                                      w.wraps_at) AS c
    ORDER BY c.time;
END;
COMMENT ON FUNCTION plant.rate IS 'Rate of a counter by interval, in units per second, whatever resets and wraps there were.';
