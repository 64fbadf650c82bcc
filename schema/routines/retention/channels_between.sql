-- The channels that have rows in a table between two times, in order, by one index lookup each: the first most (NULL:
-- all) after channel after (NULL: from the first). 0 means rows without a channel. The bounds are constants in the
-- plan: with parameters, an index scan in channel order would exclude no chunk and read the whole indexes of other
-- days.
CREATE OR REPLACE FUNCTION plant.channels_between(relation regclass, column_name name, from_time timestamptz,
                                                  to_time timestamptz, after int DEFAULT NULL, most int DEFAULT NULL)
RETURNS int[]
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog
AS $$
DECLARE
    ids int[];
BEGIN
    EXECUTE format($query$
        WITH RECURSIVE present (channel_id, ordinal) AS (
            (SELECT r.channel_id, 1 FROM %1$s AS r
             WHERE r.%2$I >= %3$L AND r.%2$I < %4$L AND %5$s ORDER BY r.channel_id LIMIT 1)
            UNION ALL
            SELECT (SELECT r.channel_id FROM %1$s AS r
                    WHERE r.%2$I >= %3$L AND r.%2$I < %4$L AND r.channel_id > f.channel_id
                    ORDER BY r.channel_id LIMIT 1),
                   f.ordinal + 1
            FROM present AS f
            WHERE f.channel_id IS NOT NULL AND f.ordinal < %6$s
        )
        SELECT coalesce(array_agg(f.channel_id ORDER BY f.ordinal), '{}')
        FROM present AS f
        WHERE f.channel_id IS NOT NULL
    $query$, relation, column_name, from_time, to_time,
    coalesce('r.channel_id > ' || after, 'r.channel_id IS NOT NULL'), coalesce(most, 2147483647)) INTO ids;
    IF relation = 'plant.event'::regclass AND NOT 0 = ANY (ids)
       AND EXISTS (SELECT FROM plant.event AS e
                   WHERE e.channel_id IS NULL AND e.time >= from_time AND e.time < to_time) THEN
        ids := 0 || ids;
    END IF;
    RETURN ids;
END
$$;
