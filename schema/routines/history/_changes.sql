-- The changes of a value by interval: how many there are (NumberOfTransitions of OPC 10000-13, 5.4.3.24), and how much they amount
-- to if the value is a counter's. The first value is compared with the last usable one before it, however many Bad ones are
-- between; the very first value is a transition, and no increase. seconds: within the data.
CREATE OR REPLACE FUNCTION plant._changes(
    channel int, "from" timestamptz, "to" timestamptz, step interval, treat_uncertain_as_bad boolean, percent_data_bad int,
    percent_data_good int, wraps_at float8 DEFAULT NULL
)
RETURNS TABLE ("time" timestamptz, transitions bigint, increase float8, seconds float8, status int)
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT i.time, CASE WHEN s.status >= 0 THEN p.transitions END, CASE WHEN s.status >= 0 THEN coalesce(p.increase, 0) END,
           (least(i.at + i.width, p.data_ends) - greatest(i.at, p.data_begins)) / 1e6::float8, s.status
    FROM plant._intervals("from", "to", step, percent_data_bad, percent_data_good) AS i
    LEFT JOIN (
        SELECT v.bucket,
               count(v.value) FILTER (WHERE NOT v.held AND v.value IS DISTINCT FROM v.before) AS transitions,
               sum(plant.counter_increase(v.before, v.value, wraps_at)) FILTER (WHERE NOT v.held) AS increase,
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
