-- The number of changes of a value by interval: NumberOfTransitions of OPC 10000-13 (5.4.3.24). The first value is compared
-- with the last usable one before it, however many Bad ones are between; the very first value is a transition. docs/sql.md
-- describes the parameters.
CREATE OR REPLACE FUNCTION plant.count_transitions(
    channel int, "from" timestamptz, "to" timestamptz, step interval DEFAULT NULL,
    treat_uncertain_as_bad boolean DEFAULT true, percent_data_bad int DEFAULT 100, percent_data_good int DEFAULT 100
)
RETURNS TABLE ("time" timestamptz, transitions bigint, status int)
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT i.time, CASE WHEN s.status >= 0 THEN p.transitions END, s.status
    FROM plant._intervals("from", "to", step, percent_data_bad, percent_data_good) AS i
    LEFT JOIN (
        SELECT v.bucket,
               count(v.value) FILTER (WHERE NOT v.held AND v.value IS DISTINCT FROM v.before) AS transitions,
               count(*) FILTER (WHERE NOT v.held) AS n, count(v.value) FILTER (WHERE NOT v.held) AS usable,
               count(*) FILTER (WHERE v.good AND NOT v.held) AS good, bool_or(v.held) AS held,
               min(v.data_begins) AS data_begins, min(v.data_ends) AS data_ends
        FROM (
            SELECT u.*, lag(u.value, 1, b.value) OVER (PARTITION BY u.value IS NULL OR u.held ORDER BY u.at) AS before
            FROM plant._values(channel, "from", "to", step, treat_uncertain_as_bad) AS u
            LEFT JOIN plant._nearest_value(
                channel, "from", false, CASE WHEN treat_uncertain_as_bad THEN 'good' ELSE 'uncertain' END) AS b ON true
        ) AS v
        GROUP BY v.bucket
    ) AS p ON p.bucket = i.bucket
    CROSS JOIN LATERAL (
        -- without samples, a value that holds had no transition; Bad samples alone say nothing
        SELECT CASE WHEN p.n = 0 AND p.held
                    THEN plant.aggregate_status(1, 1, 1, 0, x.partial, percent_data_bad, percent_data_good)
                    WHEN p.n > 0 AND p.usable = 0 THEN -2147483648
                    ELSE plant.aggregate_status(p.n, p.usable, p.good, p.n - p.usable, x.partial, percent_data_bad,
                                                percent_data_good)
               END AS status
        FROM (SELECT i.cut OR i.at < p.data_begins OR i.at + i.width > p.data_ends AS partial) AS x
    ) AS s
    ORDER BY i.bucket;
END;
COMMENT ON FUNCTION plant.count_transitions IS 'Number of changes of a channel''s value by interval: NumberOfTransitions of OPC UA.';
