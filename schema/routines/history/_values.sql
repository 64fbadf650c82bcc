-- The samples of each interval, for aggregates that count values. value is NULL where a sample is Bad; a recorded gap
-- within the data counts as a Bad one in each interval that it touches. good: neither Bad nor Uncertain. held: no sample,
-- but a value that holds.
CREATE OR REPLACE FUNCTION plant._values(
    channel int, "from" timestamptz, "to" timestamptz, step interval, treat_uncertain_as_bad boolean
)
RETURNS TABLE (bucket int, at float8, value float8, good boolean, held boolean, data_begins float8, data_ends float8)
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT p.bucket, p.begins, p.first, p.class = 0, p.status IS NULL AND p.first IS NOT NULL, p.data_begins, p.data_ends
    FROM plant._pieces(channel, "from", "to", step, true, true, treat_uncertain_as_bad, false) AS p
    WHERE p.status IS NOT NULL OR p.first IS NOT NULL OR p.gap AND p.begins < p.data_ends;
END;
