-- Channels that a push source creates, as role plant_ingest.

-- name: advance_ids
-- In a database that was restored, ids that the state folder knows are not given again: $1 of sources, $2 of channels.
SELECT plant.advance_ids($1, $2);

-- name: insert_channels
-- $1 source id; $2 name, $3 kind: text[]. Existing channels stay as they are.
INSERT INTO plant.channel (name, source_id, address, kind)
SELECT n.name, s.id, n.name, n.kind
FROM unnest($2::text[], $3::text[]) WITH ORDINALITY AS n (name, kind, ordinal)
JOIN plant.source AS s ON s.id = $1 AND s.kind = 'push'
WHERE NOT EXISTS (SELECT FROM plant.channel AS c WHERE c.name = n.name)
  AND NOT EXISTS (SELECT FROM plant.channel_version AS v WHERE v.name = n.name) -- renamed
ORDER BY n.ordinal
ON CONFLICT (name) DO NOTHING;

-- name: select_channels
-- The channels that have the names $1 text[], or had them last before they were renamed.
SELECT DISTINCT ON (v.name) v.name, c.id, c.source_id, c.address, c.kind, s.name AS source
FROM plant.channel_version AS v
JOIN plant.channel AS c ON c.id = v.channel_id
JOIN plant.source AS s ON s.id = c.source_id
WHERE v.name = ANY ($1::text[])
ORDER BY v.name, c.name = v.name DESC, v.valid_to DESC;
