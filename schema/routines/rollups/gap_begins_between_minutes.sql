-- Start times of gaps in minutes that have no row; rows of minutes account for theirs. OFFSET 0 forces one lookup each,
-- planned over the chunks within the bounds; a join would be planned over all chunks.
CREATE OR REPLACE FUNCTION plant.gap_begins_between_minutes(channels int[], "from" timestamptz, "to" timestamptz)
RETURNS TABLE (channel_id int, begins timestamptz[])
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT g.channel_id, array_agg(b.b)
    FROM plant.gap_begins(channels, "from", "to") AS g
    CROSS JOIN unnest(g.begins) AS b (b)
    CROSS JOIN LATERAL (SELECT plant.minute_of(b.b) AS minute) AS m
    WHERE NOT EXISTS (SELECT FROM plant.rollup_1m AS r
                      WHERE r.channel_id = g.channel_id AND r.bucket = m.minute
                        AND r.bucket >= plant.minute_of("from") AND r.bucket < "to" OFFSET 0)
      AND NOT EXISTS (SELECT FROM plant.rollup_1m_packed AS p
                      CROSS JOIN LATERAL plant.unpack_minutes(p, m.minute, m.minute + INTERVAL '1 minute')
                      WHERE p.channel_id = g.channel_id AND p.day = plant.day_of(m.minute)
                        AND p.day >= plant.day_of("from") AND p.day < "to" OFFSET 0)
    GROUP BY g.channel_id;
END;
