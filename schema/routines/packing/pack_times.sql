-- Encode times (ascending, unique) as start, step, unit and the planes t.
CREATE OR REPLACE FUNCTION plant.pack_times(INOUT p plant.samples_packed, times timestamptz[])
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
AS $$
DECLARE
    micro CONSTANT interval := INTERVAL '1 microsecond';
    last  CONSTANT float8 := round(date_part('epoch', times[p.n] - times[1]) * 1e6);
    since float8[]; -- µs since the first
    least float8;
    range float8;
    wide  int;
BEGIN
    p.start := times[1];
    p.unit := 1;
    p.step := CASE p.n WHEN 1 THEN 1000000 ELSE greatest(1, round(last / (p.n - 1))) END;
    IF times = ARRAY(SELECT generate_series(p.start, p.start + micro * (p.step * (p.n - 1)), micro * p.step)) THEN
        RETURN;
    END IF;
    since := ARRAY(SELECT round(date_part('epoch', u.t - times[1]) * 1e6) FROM unnest(times) AS u (t));
    -- Choose the straight line with the smallest range of deviations: with the mean step, or with the median step, which
    -- a gap or a late sample does not change.
    WITH at AS (
        SELECT u.o - 1 AS i, u.since, u.since - lag(u.since) OVER (ORDER BY u.o) AS step
        FROM unnest(since) WITH ORDINALITY AS u (since, o)
    ),
    usual AS (
        SELECT percentile_disc(0.5) WITHIN GROUP (ORDER BY a.step) AS step,
               CASE WHEN bool_and(a.since / 1e6 = floor(a.since / 1e6)) THEN 1000000
                    WHEN bool_and(a.since / 1000 = floor(a.since / 1000)) THEN 1000 ELSE 1 END AS unit
        FROM at AS a
    ),
    candidate AS (
        SELECT DISTINCT u.unit, c.step
        FROM usual AS u
        CROSS JOIN LATERAL (VALUES (round(last / (p.n - 1) / u.unit) * u.unit), (u.step),
                                   (round(u.step / 1000) * 1000), (round(u.step / 10000) * 10000)) AS c (step)
        WHERE c.step >= u.unit AND c.step / u.unit = floor(c.step / u.unit)
    )
    SELECT c.unit, c.step, min(a.since - a.i * c.step), max(a.since - a.i * c.step) - min(a.since - a.i * c.step)
    INTO p.unit, p.step, least, range
    FROM candidate AS c
    CROSS JOIN at AS a
    GROUP BY c.unit, c.step
    ORDER BY 4, c.step
    LIMIT 1;
    wide := plant.planes(range / p.unit);
    since := ARRAY(SELECT (u.since - (u.o - 1) * p.step - least) / p.unit
                   FROM unnest(since) WITH ORDINALITY AS u (since, o));
    -- The smallest deviation and the offsets of the planes are added to start.
    p.start := p.start + micro * (least + plant.planes_middle(wide) * p.unit);
    p.t0 := CASE WHEN wide > 0 THEN plant.plane(since, 0) END;
    p.t1 := CASE WHEN wide > 1 THEN plant.plane(since, 1) END;
    p.t2 := CASE WHEN wide > 2 THEN plant.plane(since, 2) END;
    p.t3 := CASE WHEN wide > 3 THEN plant.plane(since, 3) END;
END
$$;
