-- Registers a plant's configuration in plant.source and plant.channel, in one transaction. Ids are never reused:
-- existing rows are updated, new ones inserted, and those that are no longer configured retired.

-- name: lock_registration
-- One registration at a time; the end of the transaction releases the lock.
SELECT pg_advisory_xact_lock(7361023400153);

-- name: set_registration
-- Until the end of the transaction, new versions of channels wait for their collectors.
SELECT set_config('plant.registration', 'on', true);

-- name: select_source_differences
-- Sources that a registration adds, changes or retires: $1 name, $2 kind, $3 address: text[]; $4 installation.
WITH configured AS (
    SELECT n.name, jsonb_build_object('kind', n.kind, 'address', n.address) AS facts
    FROM unnest($1::text[], $2::text[], $3::text[]) AS n (name, kind, address)
),
known AS (
    SELECT s.name, s.retired_at, jsonb_build_object('kind', s.kind, 'address', s.address) AS facts
    FROM plant.source AS s
    WHERE s.installation_id = $4
)
SELECT name, k.facts::text AS old, n.facts::text AS new,
       CASE WHEN k.facts IS NULL OR (n.facts IS NOT NULL AND k.retired_at IS NOT NULL) THEN 'added'
            WHEN n.facts IS NULL THEN 'retired' ELSE 'changed' END AS change
FROM configured AS n
FULL JOIN known AS k USING (name)
WHERE CASE WHEN n.facts IS NULL THEN k.retired_at IS NULL
           ELSE k.facts IS DISTINCT FROM n.facts OR k.retired_at IS NOT NULL END
ORDER BY name;

-- name: create_temporary_tables
-- configured: the configuration's channels in its order, sent once a registration and read by the statements below.
-- difference: the channels that differ from plant.channel, so that unchanged ones are compared only once.
CREATE TEMPORARY TABLE configured (
    ordinal     int    NOT NULL,
    name        text   NOT NULL,
    source      text   NOT NULL,
    address     text   NOT NULL,
    attributes  jsonb  NOT NULL,
    kind        text   NOT NULL,
    unit        text   NOT NULL,
    lo          float8,
    hi          float8,
    deadband    float8 NOT NULL,
    description text   NOT NULL,
    retention   text   NOT NULL
) ON COMMIT DROP;
CREATE TEMPORARY TABLE difference (
    change  text NOT NULL, -- added, returned, changed, retired
    name    text NOT NULL,
    source  text NOT NULL,
    ordinal int, -- in configured
    id      int -- in plant.channel
) ON COMMIT DROP;

-- name: analyze_configured
ANALYZE pg_temp.configured;

-- name: insert_differences
-- Channels that a registration adds, returns, changes or retires: $1 installation. Channels that a push source created
-- (name and address are equal) are not retired by the configuration.
WITH known AS (
    SELECT c.*, s.name AS source, s.kind = 'push' AND c.name = c.address AS created
    FROM plant.channel AS c
    JOIN plant.source AS s ON s.id = c.source_id
    WHERE s.installation_id = $1
)
INSERT INTO pg_temp.difference (change, name, source, ordinal, id)
SELECT CASE WHEN k.id IS NULL THEN 'added' WHEN n.ordinal IS NULL THEN 'retired'
            WHEN k.retired_at IS NOT NULL THEN 'returned' ELSE 'changed' END,
       name, coalesce(n.source, k.source), n.ordinal, k.id
FROM pg_temp.configured AS n
FULL JOIN known AS k USING (name)
WHERE CASE WHEN n.ordinal IS NULL THEN k.retired_at IS NULL AND NOT k.created
           ELSE k.id IS NULL OR k.retired_at IS NOT NULL
                OR (n.source, n.address, n.kind, n.unit, n.lo, n.hi, n.deadband, n.description, n.attributes,
                    n.retention)
                   IS DISTINCT FROM
                   (k.source, k.address, k.kind, k.unit, k.range_lo, k.range_hi, k.deadband, k.description,
                    k.attributes, k.retention) END;

-- name: delete_differences
DELETE FROM pg_temp.difference;

-- name: select_differences
-- Old and new definitions of the channels that a registration changes, retires or returns.
SELECT d.change, d.name, d.source, d.id,
       jsonb_build_object('source', s.name, 'address', c.address, 'kind', c.kind, 'unit', c.unit, 'lo', c.range_lo,
                          'hi', c.range_hi, 'deadband', c.deadband, 'description', c.description,
                          'attributes', c.attributes, 'retention', c.retention)::text AS old,
       (to_jsonb(n) - ARRAY['ordinal', 'name'])::text AS new
FROM pg_temp.difference AS d
JOIN plant.channel AS c ON c.id = d.id
JOIN plant.source AS s ON s.id = c.source_id
LEFT JOIN pg_temp.configured AS n ON n.ordinal = d.ordinal
ORDER BY d.ordinal, d.id;

-- name: select_added
-- Added and returned channels by source: how many, and the first $1 names.
SELECT d.source, count(*) AS n, array_agg(d.name ORDER BY d.ordinal) FILTER (WHERE d.number <= $1) AS first
FROM (
    SELECT o.source, o.name, o.ordinal, row_number() OVER (PARTITION BY o.source ORDER BY o.ordinal) AS number
    FROM pg_temp.difference AS o
    WHERE o.change IN ('added', 'returned')
) AS d
GROUP BY d.source;

-- name: select_same_address
-- Pairs of one added and one retired channel that read the same: $1 attributes that may differ, text[].
WITH channels AS (
    SELECT d.change, d.name, d.ordinal, d.source, coalesce(n.address, c.address) AS address,
           coalesce(n.attributes, c.attributes) - $1::text[] AS parameters
    FROM pg_temp.difference AS d
    LEFT JOIN pg_temp.configured AS n ON n.ordinal = d.ordinal
    LEFT JOIN plant.channel AS c ON c.id = d.id
    WHERE d.change IN ('added', 'retired') AND EXISTS (SELECT FROM pg_temp.difference AS o WHERE o.change = 'retired')
)
SELECT min(p.name) FILTER (WHERE p.change = 'added') AS added,
       min(p.name) FILTER (WHERE p.change = 'retired') AS retired
FROM channels AS p
GROUP BY p.source, p.address, p.parameters
HAVING count(*) FILTER (WHERE p.change = 'added') = 1 AND count(*) FILTER (WHERE p.change = 'retired') = 1
ORDER BY min(p.ordinal);

-- name: select_unknown_sources
-- Sources of a registry that are not in this database: $1 names, $2 ids; the name that has the id,
-- the id that has the name.
SELECT k.name, k.id, other.name AS other, here.id AS here
FROM unnest($1::text[], $2::int[]) AS k (name, id)
LEFT JOIN plant.source AS other ON other.id = k.id
LEFT JOIN plant.source AS here ON here.name = k.name
WHERE other.name IS DISTINCT FROM k.name
ORDER BY k.id;

-- name: digest_names
-- Of the channels $1 int[] that are in this database: if it is that of the registry's names, none is unknown.
SELECT md5(coalesce(string_agg(concat(c.id, ' ', c.name), E'\n' ORDER BY c.id), ''))
FROM plant.channel AS c
WHERE c.id = ANY ($1::int[]);

-- name: select_unknown_channels
-- Names and ids of a registry's channels that this database never had: $1 names, $2 ids.
SELECT k.name, k.id
FROM unnest($1::text[], $2::int[]) AS k (name, id)
WHERE NOT EXISTS (SELECT FROM plant.channel_version AS v WHERE v.channel_id = k.id AND v.name = k.name)
ORDER BY k.id;

-- name: select_places
-- What has the ids $2 or the names $1 of such channels: the name that has the id, the id that has the name; and whether
-- it is what pg_temp.configured defines: $3 attributes that may differ, text[].
SELECT k.name, k.id, n.ordinal IS NOT NULL AS defined, other.name AS other, here.id AS here,
       coalesce(other.source_id = s.id AND other.address = n.address
                AND NOT EXISTS (SELECT FROM unnest('{bit, index, member, unit_id}'::text[]) AS key -- of what is there
                                WHERE other.attributes -> key IS DISTINCT FROM n.attributes -> key), false)
           AS same_other,
       coalesce((here.source_id, here.address, here.kind, here.unit)
                = (s.id, n.address, n.kind, n.unit)
                AND here.attributes - $3::text[] = n.attributes - $3::text[], false) AS same_here
FROM unnest($1::text[], $2::int[]) AS k (name, id)
LEFT JOIN pg_temp.configured AS n ON n.name = k.name
LEFT JOIN plant.source AS s ON s.name = n.source
LEFT JOIN plant.channel AS other ON other.id = k.id
LEFT JOIN plant.channel AS here ON here.name = k.name
ORDER BY k.id;

-- name: insert_known_sources
-- $1 ids int[]; $2 name, $3 kind, $4 address: text[]; $5 installation.
INSERT INTO plant.source (id, name, kind, address, installation_id) OVERRIDING SYSTEM VALUE
SELECT k.id, k.name, k.kind, k.address, $5
FROM unnest($1::int[], $2::text[], $3::text[], $4::text[]) AS k (id, name, kind, address);

-- name: insert_known_channels
-- Channels of pg_temp.configured: $1 names text[], $2 ids int[],
-- $3 since when they are configured float8[] (s, NULL: now).
INSERT INTO plant.channel
    (id, name, source_id, address, kind, unit, range_lo, range_hi, deadband, description, attributes, retention,
     configured_at)
OVERRIDING SYSTEM VALUE
SELECT k.id, n.name, s.id, n.address, n.kind, n.unit, n.lo, n.hi, n.deadband, n.description, n.attributes, n.retention,
       coalesce(to_timestamp(k.since), clock_timestamp())
FROM unnest($1::text[], $2::int[], $3::float8[]) AS k (name, id, since)
JOIN pg_temp.configured AS n ON n.name = k.name
JOIN plant.source AS s ON s.name = n.source
ORDER BY k.id;

-- name: delete_configured
DELETE FROM pg_temp.configured;

-- name: select_last_ids
-- The last ids that were given to a source and to a channel.
SELECT coalesce(pg_sequence_last_value('plant.source_id_seq'), 0),
       coalesce(pg_sequence_last_value('plant.channel_id_seq'), 0);

-- name: advance_ids
SELECT plant.advance_ids($1, $2);

-- name: select_endpoints
-- Kind and address of the sources of installation $1.
SELECT s.name, s.kind, s.address FROM plant.source AS s WHERE s.installation_id = $1;

-- name: select_renamed
-- Configured names that no channel has now but one of installation $1 had; its present name, and since when.
SELECT DISTINCT ON (d.name) d.name, c.name AS now, next.recorded_at AT TIME ZONE 'UTC' AS since
FROM pg_temp.difference AS d
JOIN plant.channel_version AS v ON v.name = d.name
JOIN plant.channel_version AS next ON next.channel_id = v.channel_id AND next.version = v.version + 1
JOIN plant.channel AS c ON c.id = v.channel_id
JOIN plant.source AS s ON s.id = c.source_id AND s.installation_id = $1
WHERE d.change = 'added'
ORDER BY d.name, next.recorded_at DESC;

-- name: supersede_channels
-- Renames the channels $1 to $2, text[], and retires them.
UPDATE plant.channel AS c
SET name = n.new_name, retired_at = now()
FROM unnest($1::text[], $2::text[]) AS n (name, new_name)
WHERE c.name = n.name;

-- name: select_named
-- Channels named $1 text[]. Those with the same location read the same, whatever their attributes $2 text[].
SELECT c.id, c.name, s.name AS source, s.installation_id, s.kind = 'push' AND c.name = c.address AS created,
       c.retired_at IS NOT NULL AS retired,
       jsonb_build_array(s.id, c.address, c.attributes - $2::text[])::text AS location
FROM plant.channel AS c
JOIN plant.source AS s ON s.id = c.source_id
WHERE c.name = ANY ($1::text[]);

-- name: rename_channel
UPDATE plant.channel AS c SET name = $2 WHERE c.name = $1;

-- name: update_sources
-- $1 name, $2 kind, $3 address: text[]. Channels that a push source created retire and return with it.
WITH returned AS (
    UPDATE plant.channel AS c
    SET retirements = c.retirements + tstzmultirange(tstzrange(least(s.retired_at, now()), now()))
    FROM plant.source AS s
    WHERE s.id = c.source_id AND s.name = ANY ($1::text[]) AND s.retired_at IS NOT NULL AND c.retired_at IS NULL
)
UPDATE plant.source AS s
SET kind = n.kind, address = n.address, retired_at = NULL
FROM unnest($1::text[], $2::text[], $3::text[]) AS n (name, kind, address)
WHERE s.name = n.name
  AND (s.kind <> n.kind OR s.address <> n.address OR s.retired_at IS NOT NULL);

-- name: insert_sources
-- $1 name, $2 kind, $3 address: text[]; $4 installation
INSERT INTO plant.source (name, kind, address, installation_id)
SELECT n.name, n.kind, n.address, $4
FROM unnest($1::text[], $2::text[], $3::text[]) AS n (name, kind, address)
WHERE NOT EXISTS (SELECT FROM plant.source AS s WHERE s.name = n.name);

-- name: retire_sources
-- Retires sources of installation $2 that its configuration, $1 text[], no longer names.
UPDATE plant.source AS s
SET retired_at = now()
WHERE s.retired_at IS NULL
  AND s.installation_id = $2
  AND s.name <> ALL ($1::text[]);

-- name: update_channels
UPDATE plant.channel AS c
SET source_id = s.id, address = n.address, kind = n.kind, unit = n.unit, range_lo = n.lo, range_hi = n.hi,
    deadband = n.deadband, description = n.description, attributes = n.attributes, retention = n.retention,
    retired_at = NULL,
    retirements = c.retirements + CASE WHEN c.retired_at IS NULL THEN '{}'
                                       ELSE tstzmultirange(tstzrange(least(c.retired_at, now()), now())) END
FROM pg_temp.difference AS d
JOIN pg_temp.configured AS n ON n.ordinal = d.ordinal
JOIN plant.source AS s ON s.name = n.source
WHERE c.id = d.id;

-- name: insert_channels
INSERT INTO plant.channel
    (name, source_id, address, kind, unit, range_lo, range_hi, deadband, description, attributes, retention)
SELECT n.name, s.id, n.address, n.kind, n.unit, n.lo, n.hi, n.deadband, n.description, n.attributes, n.retention
FROM pg_temp.difference AS d
JOIN pg_temp.configured AS n ON n.ordinal = d.ordinal
JOIN plant.source AS s ON s.name = n.source
WHERE d.change = 'added'
ORDER BY n.ordinal;

-- name: retire_channels
-- Retires channels that the configuration no longer names.
UPDATE plant.channel AS c
SET retired_at = now()
FROM pg_temp.difference AS d
WHERE c.id = d.id AND d.change = 'retired';

-- name: analyze_channels
-- Without statistics, the planner expects a few channels and reads the samples of each by itself.
ANALYZE plant.source, plant.channel, plant.channel_version;

-- name: upsert_settings
-- Settings of the configuration: $1 keys, $2 values text[] (NULL deletes the key); $3 installation.
WITH configured AS (
    SELECT n.key, n.value FROM unnest($1::text[], $2::text[]) AS n (key, value)
),
deleted AS (
    DELETE FROM plant.setting AS s USING configured AS n WHERE s.key = n.key AND n.value IS NULL
)
INSERT INTO plant.setting AS s (key, value, installation_id)
SELECT n.key, n.value, $3 FROM configured AS n WHERE n.value IS NOT NULL
ON CONFLICT (key) DO UPDATE SET value = excluded.value, installation_id = excluded.installation_id
WHERE (s.value, s.installation_id) IS DISTINCT FROM (excluded.value, excluded.installation_id);

-- name: select_other_settings
-- Keys of the settings $1 whose values in the database are not $2, text[].
SELECT n.key
FROM unnest($1::text[], $2::text[]) AS n (key, value)
LEFT JOIN plant.setting AS s ON s.key = n.key
WHERE s.value IS DISTINCT FROM n.value;

-- name: upsert_retention_classes
-- $1 names text[]; $2 raw, $3 minute, $4 hour, $5 event: float8[], s, NULL: forever; $6 installation. A retired channel
-- of a class that the configuration no longer names keeps everything.
WITH configured AS (
    SELECT i.class_prefix || n.name AS name, INTERVAL '1 second' * n.raw AS raw,
           INTERVAL '1 second' * n.minute AS minute, INTERVAL '1 second' * n.hour AS hour,
           INTERVAL '1 second' * n.event AS event
    FROM unnest($1::text[], $2::float8[], $3::float8[], $4::float8[], $5::float8[])
        AS n (name, raw, minute, hour, event)
    JOIN plant.installation AS i ON i.id = $6
),
deleted AS (
    DELETE FROM plant.retention_class AS c
    WHERE c.installation_id = $6 AND c.name NOT IN (SELECT n.name FROM configured AS n)
)
INSERT INTO plant.retention_class AS c (name, raw, minute, hour, event, installation_id)
SELECT n.name, n.raw, n.minute, n.hour, n.event, $6 FROM configured AS n
ON CONFLICT (name) DO UPDATE
SET raw = excluded.raw, minute = excluded.minute, hour = excluded.hour, event = excluded.event,
    installation_id = excluded.installation_id
WHERE (c.raw, c.minute, c.hour, c.event, c.installation_id)
      IS DISTINCT FROM (excluded.raw, excluded.minute, excluded.hour, excluded.event, excluded.installation_id);

-- name: select_source_ids
-- Ids of sources: $1 names text[].
SELECT s.name, s.id FROM plant.source AS s WHERE s.name = ANY ($1::text[]);

-- name: select_retired
-- Which of these sources are retired: $1 names text[], $2 their ids int[].
SELECT s.id, s.name
FROM unnest($1::text[], $2::int[]) AS n (name, id)
JOIN plant.source AS s USING (name, id)
WHERE s.retired_at IS NOT NULL;

-- name: select_channel_ids
-- Ids of the configuration's channels, in its order.
SELECT array_agg(c.id ORDER BY n.ordinal) FROM pg_temp.configured AS n JOIN plant.channel AS c ON c.name = n.name;

-- name: select_versions
-- The newest version of each configured channel that a collector has to follow.
SELECT c.name, max(v.version) AS version
FROM plant.channel_version AS v
JOIN plant.channel AS c ON c.id = v.channel_id
JOIN pg_temp.configured AS n ON n.name = c.name
WHERE v.collected
GROUP BY c.name;

-- name: select_created_channels
-- Channels that the push sources $1 text[] created.
SELECT s.name AS source, c.name, c.id, c.kind
FROM plant.channel AS c
JOIN plant.source AS s ON s.id = c.source_id
WHERE s.kind = 'push'
  AND c.name = c.address
  AND s.name = ANY ($1::text[])
  AND NOT EXISTS (SELECT FROM pg_temp.configured AS n WHERE n.name = c.name);
