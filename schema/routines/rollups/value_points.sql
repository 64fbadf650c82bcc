-- The points between two times at which a channel's known value changes: its samples (good: the value; NULL if Bad or
-- NaN), the last sample before them, and the starts of gaps (half a µs later, to follow a sample of the same time). at:
-- µs since from.
CREATE OR REPLACE FUNCTION plant.value_points(channel int, gaps timestamptz[], since timestamptz, "from" timestamptz,
                                              "to" timestamptz)
RETURNS TABLE (at float8, good float8, sample int)
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT round(date_part('epoch', s.time - "from") * 1e6),
           CASE WHEN s.status >= 0 AND s.value <> 'NaN' THEN s.value END, 1
    FROM plant.samples_between(ARRAY[channel], "from", "to") AS s
    UNION ALL
    SELECT round(date_part('epoch', s.time - "from") * 1e6),
           CASE WHEN s.status >= 0 AND s.value <> 'NaN' THEN s.value END, NULL
    FROM plant.last_before(channel, since, "from") AS s
    UNION ALL
    SELECT round(date_part('epoch', g.g - "from") * 1e6) + 0.5, NULL, NULL
    FROM unnest(gaps) AS g (g);
END;
