-- The minutes of an hour, in order. held: µs before the minute, within the hour, during which the value of the minute
-- before it held. The start of a gap has no row. Times are µs since the start of the hour.
CREATE OR REPLACE FUNCTION plant.minute_points(channel int, gaps timestamptz[], hour timestamptz)
RETURNS TABLE (until float8, line plant.rollup_1m, before float8, held float8, carries float8, carried_until float8)
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT v.until, v.line, v.before, v.held, v.carries, v.carried_until
    FROM (
        SELECT u.until, u.line, u.carries, u.carried_until, lag(u.carries) OVER minutes AS before,
               CASE WHEN lag(u.carries) OVER minutes IS NOT NULL
                    THEN greatest(0, least(u.begins, lag(u.carried_until) OVER minutes)
                                     - greatest(0, lag(u.until) OVER minutes)) END AS held
        FROM (
            SELECT b.begins, b.begins + 6e7 AS until, m AS line, CASE WHEN m.holds THEN m.last END AS carries,
                   round(date_part('epoch', m.last_time + plant.hold_limit() - hour) * 1e6) AS carried_until
            FROM plant.minutes_between(ARRAY[channel], hour, plant.add_interval(hour, INTERVAL '1 hour')) AS m
            CROSS JOIN LATERAL (SELECT round(date_part('epoch', m.bucket - hour) * 1e6) AS begins) AS b
            UNION ALL
            SELECT b.begins, b.begins + 6e7, NULL, CASE WHEN m.holds THEN m.last END,
                   round(date_part('epoch', m.last_time + plant.hold_limit() - hour) * 1e6)
            FROM plant.minute_before(channel, hour) AS m
            CROSS JOIN LATERAL (SELECT round(date_part('epoch', m.bucket - hour) * 1e6) AS begins) AS b
            UNION ALL
            SELECT b.begins, b.begins + 0.5, NULL, NULL, NULL
            FROM unnest(gaps) AS g (g)
            CROSS JOIN LATERAL (SELECT round(date_part('epoch', g.g - hour) * 1e6) AS begins) AS b
        ) AS u
        WINDOW minutes AS (ORDER BY u.until)
    ) AS v
    WHERE v.until > 0.5;
END;
