-- A percentile of the samples by interval, interpolated between two of them as percentile_cont does; each sample counts the
-- same, as in Average of OPC 10000-13 (5.4.3.5). docs/sql.md describes the parameters.
CREATE OR REPLACE FUNCTION plant.percentile(
    channel int, "from" timestamptz, "to" timestamptz, fraction float8, step interval DEFAULT NULL,
    treat_uncertain_as_bad boolean DEFAULT true, percent_data_bad int DEFAULT 100, percent_data_good int DEFAULT 100
)
RETURNS TABLE ("time" timestamptz, value float8, status int)
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog
AS $$
#variable_conflict use_column
BEGIN
    IF NOT coalesce(fraction BETWEEN 0 AND 1, false) THEN
        RAISE EXCEPTION 'fraction %', fraction
            USING ERRCODE = 'invalid_parameter_value', HINT = 'A fraction is from 0 to 1: 0.95 for the percentile 95.';
    END IF;
    RETURN QUERY
    SELECT i.time, CASE WHEN s.status >= 0 THEN p.value END, s.status
    FROM plant._intervals("from", "to", step, percent_data_bad, percent_data_good) AS i
    LEFT JOIN (
        SELECT v.bucket, percentile_cont(fraction) WITHIN GROUP (ORDER BY v.value) AS value, count(*) AS n,
               count(v.value) AS usable, count(*) FILTER (WHERE v.good) AS good,
               min(v.data_begins) AS data_begins, min(v.data_ends) AS data_ends
        FROM plant._values(channel, "from", "to", step, treat_uncertain_as_bad) AS v
        WHERE NOT v.held
        GROUP BY v.bucket
    ) AS p ON p.bucket = i.bucket
    CROSS JOIN LATERAL (
        SELECT plant.aggregate_status(p.n, p.usable, p.good, p.n - p.usable,
                                      i.cut OR i.at < p.data_begins OR i.at + i.width > p.data_ends,
                                      percent_data_bad, percent_data_good) AS status
    ) AS s
    ORDER BY i.bucket;
END
$$;
COMMENT ON FUNCTION plant.percentile IS 'Percentile of a channel''s samples by interval. fraction: 0 to 1, 0.5 for the median.';
