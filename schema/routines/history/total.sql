-- The integral by interval: Total of OPC 10000-13 (5.4.3.8), and with simple bounds Total2 (5.4.3.9), but in the rate's own
-- unit: of t/h it is t. docs/sql.md describes the parameters.
CREATE OR REPLACE FUNCTION plant.total(
    channel int, "from" timestamptz, "to" timestamptz, step interval DEFAULT NULL, per interval DEFAULT NULL,
    stepped boolean DEFAULT NULL, simple_bounds boolean DEFAULT false, treat_uncertain_as_bad boolean DEFAULT true,
    percent_data_bad int DEFAULT 100, percent_data_good int DEFAULT 100, use_sloped_extrapolation boolean DEFAULT false
)
RETURNS TABLE ("time" timestamptz, value float8, unit text, status int)
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog
AS $$
DECLARE
    rate   text;
    change record;
    whole  record;
BEGIN
    SELECT u.* INTO change
    FROM (SELECT v.unit, v.valid_from, lag(v.unit) OVER (ORDER BY v.valid_from) AS old
          FROM plant.channel_version AS v
          WHERE v.channel_id = channel AND v.valid_from < "to" AND v.valid_to > "from") AS u
    ORDER BY coalesce(u.old <> u.unit, false) DESC, u.valid_from
    LIMIT 1;
    rate := coalesce(change.unit, '');
    IF change.old <> change.unit THEN
        RAISE EXCEPTION 'channel %: its unit changed from % to % at %', channel, change.old, change.unit, change.valid_from
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Values in two units have no total: ask for each time by itself.';
    ELSIF per <= INTERVAL '0' OR date_part('month', per) <> 0 OR date_part('year', per) <> 0 THEN
        RAISE EXCEPTION 'per %', per
            USING ERRCODE = 'invalid_parameter_value', HINT = 'The time of the rate, such as 1 hour for t/h.';
    END IF;
    SELECT u.per, u.total INTO whole FROM plant.rate_unit(rate) AS u;
    RETURN QUERY
    SELECT a.time, CASE WHEN a.status >= 0 THEN a.area / date_part('epoch', coalesce(total.per, whole.per)) END,
           CASE WHEN coalesce(total.per, whole.per) = whole.per THEN whole.total
                ELSE rate || '·' || total.per END, a.status
    FROM plant._integrals(channel, "from", "to", step, stepped, simple_bounds, treat_uncertain_as_bad, percent_data_bad,
                          percent_data_good, use_sloped_extrapolation) AS a;
END
$$;
COMMENT ON FUNCTION plant.total IS 'Integral of a channel by interval, in the unit of its rate (of t/h: t): Total of OPC UA; with simple_bounds Total2. per: the time of the rate, instead of the one in the unit.';
