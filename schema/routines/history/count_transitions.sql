-- The number of changes of a value by interval: NumberOfTransitions of OPC 10000-13 (5.4.3.24). docs/sql.md describes the
-- parameters.
CREATE OR REPLACE FUNCTION plant.count_transitions(
    channel int, "from" timestamptz, "to" timestamptz, step interval DEFAULT NULL,
    treat_uncertain_as_bad boolean DEFAULT true, percent_data_bad int DEFAULT 100, percent_data_good int DEFAULT 100
)
RETURNS TABLE ("time" timestamptz, transitions bigint, status int)
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT c.time, c.transitions, c.status
    FROM plant._changes(channel, "from", "to", step, treat_uncertain_as_bad, percent_data_bad, percent_data_good) AS c;
END;
COMMENT ON FUNCTION plant.count_transitions IS 'Number of changes of a channel''s value by interval: NumberOfTransitions of OPC UA.';
