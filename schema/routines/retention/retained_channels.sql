-- Those of the channels of which retention has not dropped data of a kind (raw, 1m, 1h) at a time. What it dropped is
-- on record with its channels: the class that a channel has now does not say it,
-- since it may have had another one then.
CREATE OR REPLACE FUNCTION plant.retained_channels(channels int[], what text, at timestamptz) RETURNS int[]
LANGUAGE sql STABLE
SET search_path = pg_catalog
AS $$
WITH dropped AS MATERIALIZED (
    SELECT (e.detail ->> 'channel_ids')::int4multirange AS channels
    FROM plant.event AS e
    WHERE e.type = 'retention' AND e.time > at
      AND e.detail ->> 'what' = retained_channels.what AND e.detail ->> 'action' IN ('chunk', 'rows')
      AND (e.detail ->> 'from')::timestamptz <= at AND (e.detail ->> 'to')::timestamptz > at
      -- No event is read for times that retention has not reached.
      AND EXISTS (SELECT FROM plant.dropped AS d WHERE d.what = retained_channels.what AND d.until > at)
)
SELECT coalesce(array_agg(i.id), '{}')
FROM unnest(channels) AS i (id)
WHERE NOT EXISTS (SELECT FROM dropped AS d WHERE coalesce(d.channels @> i.id, true))
$$;
