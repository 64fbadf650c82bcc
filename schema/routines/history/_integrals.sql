-- By interval: the integral of a channel over the time in which its value is known, in value × seconds. Both time_average
-- and total are made of it. Without simple bounds, all that is not Good makes the result Uncertain (OPC 10000-13, 5.4.3.6).
-- An interval after the end of the data has no value, as in the examples of the standard.
CREATE OR REPLACE FUNCTION plant._integrals(
    channel int, "from" timestamptz, "to" timestamptz, step interval, stepped boolean, simple_bounds boolean,
    treat_uncertain_as_bad boolean, percent_data_bad int, percent_data_good int, use_sloped_extrapolation boolean
)
RETURNS TABLE ("time" timestamptz, area float8, seconds float8, status int)
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT i.time, p.area, p.known / 1e6::float8,
           plant.aggregate_status(
               w.whole, CASE WHEN i.at < p.data_ends THEN p.known END, w.good, w.whole - w.good,
               i.cut OR i.at < p.data_begins OR i.at + i.width > p.data_ends,
               CASE WHEN simple_bounds THEN percent_data_bad END, CASE WHEN simple_bounds THEN percent_data_good END)
    FROM plant._intervals("from", "to", step, percent_data_bad, percent_data_good) AS i
    LEFT JOIN (
        SELECT s.bucket, sum((s.first / 2 + s.last / 2) * ((s.ends - s.begins) / 1e6::float8)) AS area,
               sum(s.ends - s.begins) AS known, sum(greatest(0, least(s.ends, s.good_until) - s.begins)) AS good,
               min(s.data_begins) AS data_begins, min(s.data_ends) AS data_ends
        FROM plant._pieces(channel, "from", "to", step, stepped, simple_bounds, treat_uncertain_as_bad,
                           use_sloped_extrapolation) AS s
        WHERE s.first IS NOT NULL
        GROUP BY s.bucket
    ) AS p ON p.bucket = i.bucket
    CROSS JOIN LATERAL (
        SELECT CASE WHEN simple_bounds THEN least(i.width, p.data_ends - i.at) ELSE i.width END AS whole,
               CASE WHEN simple_bounds AND NOT treat_uncertain_as_bad THEN p.known ELSE p.good END AS good
    ) AS w
    ORDER BY i.bucket;
END;
