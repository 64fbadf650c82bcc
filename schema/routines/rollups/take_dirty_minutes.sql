-- take_dirty_minutes: what was marked dirty of the channels ids between two times of one day, taken off the list
--
-- Dirty rows are deleted, or cut to what is outside the bounds; rows that apply to any channel only if everyone is
-- given. Returns the channels whose gap changes the value that is carried on, each with the last minute of the gap
-- within the bounds; their hours are marked dirty.
--
-- Lists of channels are compared by hash (= ANY of a constant), not by && and <@, which compare all pairs: a gap may
-- list all channels of a source.
CREATE OR REPLACE FUNCTION plant.take_dirty_minutes(ids int[], everyone int[], "from" timestamptz, "to" timestamptz)
    RETURNS TABLE (id int, minute timestamptz)
LANGUAGE plpgsql
SET search_path = pg_catalog
SET plan_cache_mode = force_custom_plan
AS $$
DECLARE
    others CONSTANT int[] := ARRAY(SELECT e.id FROM unnest(everyone) AS e (id)
                                   EXCEPT SELECT i.id FROM unnest(ids) AS i (id));
BEGIN
    RETURN QUERY
    WITH deleted AS (
        DELETE FROM plant.rollup_dirty AS d
        WHERE d.from_time < "to" AND d.to_time > "from" AND NOT d.hours
          AND (EXISTS (SELECT FROM unnest(d.channels) AS c (id) WHERE c.id = ANY (ids))
               OR d.channels IS NULL AND everyone IS NOT NULL)
        RETURNING d.from_time, d.to_time, d.channels, d.onward
    ),
    remainder AS (
        INSERT INTO plant.rollup_dirty (from_time, to_time, channels, onward)
        SELECT t.from_time, "from", t.channels, t.onward FROM deleted AS t WHERE t.from_time < "from"
        UNION ALL
        SELECT "to", t.to_time, t.channels, t.onward FROM deleted AS t WHERE t.to_time > "to"
        UNION ALL
        SELECT r.from_time, r.to_time, r.channels, r.onward
        FROM (
            SELECT DISTINCT greatest(t.from_time, "from") AS from_time, least(t.to_time, "to") AS to_time,
                   others AS channels, t.onward
            FROM deleted AS t
            WHERE t.channels IS NULL
            UNION ALL
            SELECT greatest(t.from_time, "from"), least(t.to_time, "to"),
                   ARRAY(SELECT c.id FROM unnest(t.channels) AS c (id) WHERE c.id <> ALL (ids)), t.onward
            FROM deleted AS t
            WHERE t.channels IS NOT NULL
        ) AS r
        WHERE r.channels <> '{}'
    ),
    onward AS (
        SELECT c.id, plant.hour_of(greatest(t.from_time, "from")) AS hour,
               least(t.to_time, "to") - INTERVAL '1 minute' AS minute
        FROM deleted AS t
        CROSS JOIN unnest(t.channels) AS c (id)
        WHERE t.onward AND c.id = ANY (ids)
    ),
    hours AS (
        INSERT INTO plant.rollup_dirty (from_time, to_time, channels, hours)
        SELECT o.hour, o.hour + INTERVAL '1 hour', array_agg(DISTINCT o.id), true FROM onward AS o GROUP BY o.hour
    )
    SELECT o.id, max(o.minute) FROM onward AS o GROUP BY o.id;
END
$$;
