-- Encode values as base, divisor, single, the planes v, float4s and float8s.
CREATE OR REPLACE FUNCTION plant.pack_values(INOUT p plant.samples_packed, "values" float8[])
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
AS $$
DECLARE
    few   CONSTANT int := p.n / 16; -- at most so many values in float8s besides the planes
    k     int;
    whole float8[]; -- integers; NULL: the value has no such form
    least float8;
    range float8;
    wide  int;
BEGIN
    p.base := 0;
    p.divisor := 1;
    p.single := false;
    k := (SELECT min(h.k) FROM (SELECT d.k, sum(count(*)) OVER (ORDER BY d.k) AS upto
                                FROM (SELECT plant.decimals(u.v) AS k FROM unnest("values") AS u (v)) AS d
                                WHERE d.k IS NOT NULL
                                GROUP BY d.k) AS h
          WHERE h.upto >= p.n - few);
    IF k IS NULL AND (SELECT count(*) FILTER (WHERE plant.is_float4(u.v)) >= p.n - few FROM unnest("values") AS u (v)) THEN
        p.single := true;
        k := (SELECT min(h.k) FROM (SELECT d.k, sum(count(*)) OVER (ORDER BY d.k) AS upto
                                    FROM (SELECT plant.decimals_of_float4(u.v) AS k
                                          FROM unnest("values") AS u (v)) AS d
                                    WHERE d.k IS NOT NULL
                                    GROUP BY d.k) AS h
              WHERE h.upto >= p.n - few);
    END IF;
    IF k IS NOT NULL THEN
        p.divisor := 10::float8 ^ k;
        whole := ARRAY(SELECT CASE WHEN CASE WHEN p.single THEN plant.decimals_of_float4(u.v) ELSE plant.decimals(u.v) END <= k
                                        AND abs(u.v) < 9e15 / p.divisor
                                   THEN round(u.v * p.divisor) END
                       FROM unnest("values") AS u (v));
        SELECT min(u.w), max(u.w) - min(u.w) INTO least, range FROM unnest(whole) AS u (w);
        wide := plant.planes(range);
        -- Sums of integers below 2^53 are exact; the decoded values are still compared below.
        IF wide IS NULL OR (p.single AND wide > 2) THEN
            k := NULL;
        END IF;
    END IF;
    IF k IS NULL THEN
        p.divisor := 1;
        IF p.single THEN
            p.single := false;
            p.float4s := ARRAY(SELECT CASE WHEN plant.is_float4(u.v) THEN u.v::float4 END
                               FROM unnest("values") AS u (v));
        END IF;
    ELSE
        p.base := least + plant.planes_middle(wide);
        whole := ARRAY(SELECT u.w - least FROM unnest(whole) AS u (w));
        p.v0 := CASE WHEN wide > 0 THEN plant.plane(whole, 0) END;
        p.v1 := CASE WHEN wide > 1 THEN plant.plane(whole, 1) END;
        p.v2 := CASE WHEN wide > 2 THEN plant.plane(whole, 2) END;
        p.v3 := CASE WHEN wide > 3 THEN plant.plane(whole, 3) END;
    END IF;
    -- Values that would not decode to the same bits are kept in float8s.
    p.float8s := ARRAY(SELECT CASE WHEN NOT (u.v = u.back AND (u.v <> 0 OR float8send(u.v) = float8send(u.back)))
                                   THEN u.v END
                       FROM ROWS FROM (unnest("values"), plant.unpacked_values(p)) AS u (v, back));
    IF (SELECT bool_and(u.v IS NULL) FROM unnest(p.float8s) AS u (v)) THEN
        p.float8s := NULL;
    END IF;
END
$$;
