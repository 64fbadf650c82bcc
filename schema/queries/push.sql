-- Channels that a push source creates, as role plant_ingest.

-- name: create
-- $1 source id; $2 name, $3 kind: text[]. What is there already stays.
INSERT INTO plant.channel (name, source_id, address, kind)
SELECT n.name, s.id, n.name, n.kind
FROM unnest($2::text[], $3::text[]) WITH ORDINALITY AS n (name, kind, place)
JOIN plant.source AS s ON s.id = $1 AND s.kind = 'push'
WHERE NOT EXISTS (SELECT FROM plant.channel AS c WHERE c.name = n.name)
  AND NOT EXISTS (SELECT FROM plant.channel_version AS v WHERE v.name = n.name) -- it was renamed
ORDER BY n.place
ON CONFLICT (name) DO NOTHING;

-- name: channels
-- Who has these names, or had them last and was renamed: $1 text[].
SELECT DISTINCT ON (v.name) v.name, c.id, c.source_id, c.address, c.kind, s.name AS source
FROM plant.channel_version AS v
JOIN plant.channel AS c ON c.id = v.channel_id
JOIN plant.source AS s ON s.id = c.source_id
WHERE v.name = ANY ($1::text[])
ORDER BY v.name, c.name = v.name DESC, v.valid_to DESC;
