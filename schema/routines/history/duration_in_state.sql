-- The time in a state by interval: DurationInStateZero (OPC 10000-13, 5.4.3.22) for any state. A value holds until the next
-- one. known is the time in which the state is Good, or Uncertain if that does not count as Bad; so known - seconds is the time
-- in other states (5.4.3.23).
-- docs/sql.md describes the parameters.
CREATE OR REPLACE FUNCTION plant.duration_in_state(
    channel int, "from" timestamptz, "to" timestamptz, state float8, step interval DEFAULT NULL,
    treat_uncertain_as_bad boolean DEFAULT true, percent_data_bad int DEFAULT 100, percent_data_good int DEFAULT 100
)
RETURNS TABLE ("time" timestamptz, seconds float8, known float8, status int)
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog
AS $$
#variable_conflict use_column
BEGIN
    IF NOT coalesce(state < 'NaN', false) THEN
        RAISE EXCEPTION 'state %', state
            USING ERRCODE = 'invalid_parameter_value', HINT = 'A state is the number that is its value, such as 1.';
    END IF;
    RETURN QUERY
    SELECT i.time, CASE WHEN s.status >= 0 THEN p.seconds END, coalesce(p.known, 0) / 1e6::float8, s.status
    FROM plant._intervals("from", "to", step, percent_data_bad, percent_data_good) AS i
    LEFT JOIN (
        SELECT s.bucket,
               coalesce(sum(s.ends - s.begins) FILTER (WHERE s.first = state), 0) / 1e6::float8 AS seconds,
               sum(s.ends - s.begins) AS known, min(s.data_begins) AS data_begins, min(s.data_ends) AS data_ends
        FROM plant._pieces(channel, "from", "to", step, true, true, treat_uncertain_as_bad, false) AS s
        WHERE s.first IS NOT NULL
        GROUP BY s.bucket
    ) AS p ON p.bucket = i.bucket
    CROSS JOIN LATERAL (
        SELECT plant.aggregate_status(w.whole, p.known, p.known, w.whole - p.known,
                                      i.cut OR i.at < p.data_begins OR i.at + i.width > p.data_ends,
                                      percent_data_bad, percent_data_good) AS status
        FROM (SELECT least(i.width, p.data_ends - i.at) AS whole) AS w
    ) AS s
    ORDER BY i.bucket;
END
$$;
COMMENT ON FUNCTION plant.duration_in_state IS 'Time of a channel in a state by interval, in seconds: DurationInStateZero of OPC UA for any state.';
