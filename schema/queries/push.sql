-- Channels that a push source creates, as role plant_ingest.

-- name: create
-- $1 source id; $2 name, $3 kind: text[]. What is there already stays.
INSERT INTO plant.channel (name, source_id, address, kind)
SELECT n.name, s.id, n.name, n.kind
FROM unnest($2::text[], $3::text[]) WITH ORDINALITY AS n (name, kind, place)
JOIN plant.source AS s ON s.id = $1 AND s.kind = 'push'
WHERE NOT EXISTS (SELECT FROM plant.channel AS c WHERE c.name = n.name)
ORDER BY n.place
ON CONFLICT (name) DO NOTHING;

-- name: channels
-- Who has these names: $1 text[].
SELECT c.name, c.id, c.source_id, c.address, s.name AS source
FROM plant.channel AS c
JOIN plant.source AS s ON s.id = c.source_id
WHERE c.name = ANY ($1::text[]);
