-- The time and the unit of a rate's total: of t/h an hour and t. Without a known unit of time behind the last slash, as in
-- bar: a second, and bar·s (OPC 10000-13, 5.4.3.8).
CREATE OR REPLACE FUNCTION plant.rate_unit(unit text, OUT per interval, OUT total text)
LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT coalesce(t.per, INTERVAL '1 second'),
           CASE WHEN t.per IS NOT NULL THEN rtrim(left(unit, length(unit) - length(m.tail) - 1))
                WHEN unit = '' THEN 's' ELSE unit || '·s' END
    FROM (SELECT substring(unit FROM '/([^/]*)$') AS tail) AS m
    LEFT JOIN (VALUES ('s', INTERVAL '1 second'), ('sec', INTERVAL '1 second'), ('min', INTERVAL '1 minute'),
                      ('h', INTERVAL '1 hour'), ('hr', INTERVAL '1 hour'), ('d', INTERVAL '24 hours'),
                      ('day', INTERVAL '24 hours')) AS t (name, per)
        ON t.name = btrim(m.tail) AND length(unit) > length(m.tail) + 1;
END;
