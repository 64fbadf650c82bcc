-- Sealing, verifying and exporting closed days (UTC). history/standalone.py defines what a seal covers.

-- name: lock_sealing
-- False if another session is sealing for the installation with number $1. The end of the session releases the lock.
SELECT pg_try_advisory_lock(73610235, $1);

-- name: unlock_sealing
SELECT pg_advisory_unlock(73610235, $1);

-- name: select_numbers
-- All installations, by the number that they have in seals.
SELECT i.number, i.id, i.plant, i.sealing FROM plant.installation AS i ORDER BY i.number;

-- name: select_numbered_sources
-- Sources of other installations than the first one.
SELECT s.id, i.number
FROM plant.source AS s
JOIN plant.installation AS i ON i.id = s.installation_id
WHERE i.number > 1;

-- name: select_numbered_channels
SELECT c.id, i.number
FROM plant.channel AS c
JOIN plant.source AS s ON s.id = c.source_id
JOIN plant.installation AS i ON i.id = s.installation_id
WHERE i.number > 1;

-- name: select_lateness
-- How late data may arrive after the end of its day, in seconds.
SELECT coalesce((SELECT s.value::float8 FROM plant.setting AS s WHERE s.key = 'lateness'), 3600);

-- name: select_clock
SELECT clock_timestamp();

-- name: select_samples
-- Samples of channels $1 with $2 <= time < $3: a row for each packed hour, as it is stored, and then one for those of
-- the channel that are rows (times). A sample may be in both. Arrays are as PostgreSQL sends them, which is the
-- cheapest way out of the server. To unpack an hour here would cost 0.7 µs a sample: history/codec/packed_hours.py
-- does it.
SELECT r.channel_id, array_send(array_agg(r.time)) AS times, array_send(array_agg(r.value)) AS "values",
       array_send(array_agg(r.status)) AS statuses, NULL::int AS n, NULL::timestamptz AS start, NULL::int8 AS step,
       NULL::int AS unit, NULL::bytea[] AS t, NULL::float8 AS base, NULL::float8 AS divisor, NULL::boolean AS single,
       NULL::bytea[] AS v, NULL::bytea AS float4s, NULL::bytea AS float8s, NULL::int AS status
FROM plant.samples_raw AS r
WHERE r.channel_id = ANY ($1::int[]) AND r.time >= $2::timestamptz AND r.time < $3::timestamptz
GROUP BY r.channel_id
UNION ALL
SELECT p.channel_id, NULL, NULL, array_send(p.statuses), p.n, p.start, p.step, p.unit,
       ARRAY[array_send(p.t0), array_send(p.t1), array_send(p.t2), array_send(p.t3)], p.base, p.divisor, p.single,
       ARRAY[array_send(p.v0), array_send(p.v1), array_send(p.v2), array_send(p.v3)], array_send(p.float4s),
       array_send(p.float8s), p.status
FROM plant.samples_packed AS p
WHERE p.channel_id = ANY ($1::int[]) AND p.hour >= plant.hour_of($2::timestamptz) AND p.hour < $3::timestamptz
ORDER BY channel_id, start;

-- name: count_samples
-- Samples of channels $1 by hour, $2 <= hour < $3, without decoding what is packed.
WITH packed AS (
    SELECT p.channel_id, p.hour, p.n
    FROM plant.samples_packed AS p
    WHERE p.channel_id = ANY ($1::int[]) AND p.hour >= $2::timestamptz AND p.hour < $3::timestamptz
),
raw AS (
    SELECT r.channel_id, date_trunc('hour', r.time, 'UTC') AS hour, count(*) AS n
    FROM plant.samples_raw AS r
    WHERE r.channel_id = ANY ($1::int[]) AND r.time >= $2::timestamptz AND r.time < $3::timestamptz
      AND (r.time >= (SELECT u.until FROM plant.packed_until AS u) OR NOT plant.is_packed(r.channel_id, r.time))
    GROUP BY r.channel_id, date_trunc('hour', r.time, 'UTC')
)
SELECT b.channel_id, b.hour, sum(b.n)::bigint AS n
FROM (SELECT * FROM packed UNION ALL SELECT * FROM raw) AS b
GROUP BY b.channel_id, b.hour;

-- name: select_channels
-- Ids that have samples with $1 <= time < $2, whether or not they are in plant.channel, and how many (NULL: some are
-- not packed, and would have to be counted).
WITH of_table AS (
    SELECT p.channel_id, sum(p.n)::bigint AS n
    FROM plant.samples_packed AS p
    WHERE p.hour >= $1::timestamptz AND p.hour < $2::timestamptz
    GROUP BY p.channel_id
    UNION ALL
    SELECT unnest(plant.channels_between('plant.samples_raw', 'time', $1::timestamptz, $2::timestamptz)), NULL
)
SELECT t.channel_id, CASE WHEN count(*) = count(t.n) THEN sum(t.n)::bigint END AS n
FROM of_table AS t
GROUP BY t.channel_id
ORDER BY t.channel_id;

-- name: select_unsealed_days
-- Days that end at or before $1 and have no seal of installation $2 or of all: those that may hold data, and each one
-- after the newest day that it sealed.
WITH spans AS (
    SELECT k.range_start AS begins, k.range_end AS ends
    FROM timescaledb_information.chunks AS k
    WHERE k.hypertable_schema = 'plant' AND k.hypertable_name IN ('samples_raw', 'samples_packed', 'event')
    UNION ALL
    SELECT g.from_time, coalesce(g.to_time, $1::timestamptz) FROM plant.gap AS g
    UNION ALL
    SELECT (max(s.day) + 1)::timestamp AT TIME ZONE 'UTC', $1::timestamptz
    FROM plant.day_seal AS s
    WHERE s.chain = $2::int
),
days AS (
    SELECT DISTINCT (d.day AT TIME ZONE 'UTC')::date AS day
    FROM spans AS s
    CROSS JOIN LATERAL generate_series(date_trunc('day', s.begins, 'UTC'), least(s.ends, $1::timestamptz),
                                       INTERVAL '24 hours') AS d (day)
    WHERE d.day + INTERVAL '24 hours' <= $1::timestamptz
)
SELECT d.day,
       d.day > coalesce((SELECT max(s.day) FROM plant.day_seal AS s WHERE s.chain = $2), 'infinity')
           AS after_newest_seal
FROM days AS d
WHERE NOT EXISTS (SELECT FROM plant.day_seal AS s WHERE s.day = d.day AND s.installation IN (0, $2))
ORDER BY d.day;

-- name: select_sealed_before
-- The newest day before $2 that chain $1 sealed.
SELECT max(s.day) FROM plant.day_seal AS s WHERE s.chain = $1 AND s.day < $2;

-- name: select_sealed_numbers
-- What the seals of day $1 cover: installations, or all (0).
SELECT DISTINCT s.installation FROM plant.day_seal AS s WHERE s.day = $1;

-- name: insert_progress
INSERT INTO plant.seal_progress (chain, day, read_from, hour, behind)
VALUES ($1, $2, clock_timestamp(), 0, -2147483648)
ON CONFLICT (chain, day) DO NOTHING;

-- name: select_progress
SELECT p.read_from, p.hour, p.behind FROM plant.seal_progress AS p WHERE p.chain = $1 AND p.day = $2;

-- name: update_progress
UPDATE plant.seal_progress AS p SET hour = $3, behind = $4 WHERE p.chain = $1 AND p.day = $2;

-- name: upsert_partial_digests
-- $1 chain, $2 day, $3 hour, $4 channel ids, $5 n: int[], $6 digests bytea[].
INSERT INTO plant.seal_work AS w (chain, day, hour, channel_id, n, digest)
SELECT $1, $2, $3, d.channel_id, d.n, d.digest
FROM unnest($4::int[], $5::int[], $6::bytea[]) AS d (channel_id, n, digest)
ON CONFLICT (chain, day, channel_id, hour) DO UPDATE SET n = excluded.n, digest = excluded.digest;

-- name: select_partial_digests
-- By channel: the hours read so far, with the samples and the digest of each.
SELECT w.channel_id, array_agg(w.hour ORDER BY w.hour) AS hours, array_agg(w.n ORDER BY w.hour) AS n,
       array_agg(w.digest ORDER BY w.hour) AS digests
FROM plant.seal_work AS w
WHERE w.chain = $1 AND w.day = $2
GROUP BY w.channel_id;

-- name: delete_progress
WITH deleted AS (DELETE FROM plant.seal_progress AS p WHERE p.chain = $1 AND p.day = $2)
DELETE FROM plant.seal_work AS w WHERE w.chain = $1 AND w.day = $2;

-- name: build_document
-- The definitions of channels and sources with $1 <= time < $2, as JSON text. Equal definitions give equal text. A
-- channel that changed within that time has one entry a version, by time, with valid_from in µs since 1970. $3: number
-- of the installation that they belong to, which then is named; 0: all. Of configurations that were applied by then,
-- the SHA-256 of what plant.config_revision has of them: files by theirs.
WITH covered AS (
    SELECT s.*
    FROM plant.source AS s
    LEFT JOIN plant.installation AS i ON i.id = s.installation_id
    WHERE $3::int IN (0, coalesce(i.number, 1))
),
channels AS (
    SELECT coalesce(jsonb_agg(jsonb_strip_nulls(jsonb_build_object(
               'id', v.channel_id, 'name', v.name, 'source', v.source_id, 'address', v.address, 'kind', v.kind,
               'unit', v.unit, 'range_lo', v.range_lo, 'range_hi', v.range_hi, 'attributes', v.attributes,
               'valid_from', CASE WHEN v.valid_from > $1 THEN (extract(epoch FROM v.valid_from) * 1000000)::int8 END))
           ORDER BY v.channel_id, v.valid_from), '[]') AS listed
    FROM plant.channel_version AS v
    WHERE v.valid_from < $2::timestamptz AND v.valid_to > $1::timestamptz
      AND ($3 = 0 OR v.source_id IN (SELECT s.id FROM covered AS s))
),
sources AS (
    SELECT coalesce(jsonb_agg(jsonb_build_object('id', s.id, 'name', s.name, 'kind', s.kind, 'address', s.address)
                              ORDER BY s.id), '[]') AS listed
    FROM covered AS s
),
configurations AS (
    SELECT coalesce(jsonb_agg(jsonb_build_object('installation', r.installation, 'revision', r.revision, 'digest',
                                                 encode(sha256(convert_to(jsonb_build_object(
                   'applied_at', (extract(epoch FROM r.applied_at) * 1000000)::int8, 'account', r.account,
                   'sudo_user', r.sudo_user, 'host', r.host, 'command', r.command, 'member', r.member, 'file', r.file,
                   'files', r.files)::text, 'UTF8')), 'hex'))
                              ORDER BY r.installation, r.revision), '[]') AS listed
    FROM plant.config_revision AS r
    WHERE r.applied_at < $2 AND $3 IN (0, r.installation)
)
SELECT (jsonb_build_object('channels', c.listed, 'sources', s.listed, 'configurations', r.listed)
        || coalesce((SELECT jsonb_build_object('installation', jsonb_build_object('number', i.number, 'plant', i.plant))
                     FROM plant.installation AS i WHERE i.number = $3), '{}'))::text
FROM channels AS c
CROSS JOIN sources AS s
CROSS JOIN configurations AS r;

-- name: select_revisions
SELECT r.installation, r.revision, r.files::text AS files FROM plant.config_revision AS r;

-- name: select_config_files
SELECT f.sha256, f.content FROM plant.config_file AS f;

-- name: select_events
-- $1 <= time < $2
SELECT e.time, e.id, e.type, e.source_id, e.channel_id, e.status, e.text, e.detail::text AS detail
FROM plant.event AS e
WHERE e.time >= $1::timestamptz AND e.time < $2::timestamptz
ORDER BY e.time, e.id;

-- name: select_gaps
-- Gaps that overlap $1 <= time < $2. What happened to a gap after the day does not belong to the day.
SELECT g.source_id, g.channel_id, g.from_time, least(coalesce(g.to_time, 'infinity'), $2::timestamptz) AS to_time,
       g.reason, g.detail, g.backfilled_at IS NOT NULL AS backfilled
FROM plant.gap AS g
WHERE g.from_time < $2::timestamptz
  AND (coalesce(g.to_time, 'infinity') > $1::timestamptz OR g.from_time >= $1::timestamptz)
ORDER BY g.source_id, g.channel_id NULLS FIRST, g.from_time;

-- name: select_seals
-- The newest $2 (NULL: all) of chain $1, in the order of sealing; of the differences, only their digest.
SELECT n.*
FROM (
    SELECT s.serial, s.day, s.revision, s.kind, s.root, s.previous, s.read_from, s.sealed_at, s.samples, s.channels,
           s.events, s.gaps, sha256(convert_to(s.differs, 'UTF8')) AS differs, s.key, s.signature,
           s.installation
    FROM plant.day_seal AS s
    WHERE s.chain = $1
    ORDER BY s.serial DESC
    LIMIT $2
) AS n
ORDER BY n.serial;

-- name: select_seal_parts
-- The parts of each root of the revisions of day $1 and installation $2 (0: all), other than the channels' digests.
SELECT s.document, s.events_n, s.events_digests, s.gaps_digest, s.differs
FROM plant.day_seal AS s
WHERE s.day = $1 AND s.installation = $2
ORDER BY s.revision;

-- name: select_digests
SELECT d.channel_id, d.revision, d.n, d.digests
FROM plant.seal_digest AS d
WHERE d.day = $1 AND d.installation = $2
ORDER BY d.revision, d.channel_id;

-- name: select_document
SELECT d.content FROM plant.seal_document AS d WHERE d.digest = $1;

-- name: insert_document
INSERT INTO plant.seal_document (digest, content) VALUES ($1, $2) ON CONFLICT DO NOTHING;

-- name: insert_seal
INSERT INTO plant.day_seal (serial, day, revision, kind, root, previous, read_from, sealed_at, samples, channels,
                            events, gaps, document, events_n, events_digests, gaps_digest, differs, key, signature,
                            installation)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20);

-- name: select_keys
SELECT k.fingerprint, k.public, k.made_at, k.succeeds, k.own_signature, k.former_signature
FROM plant.seal_key AS k
WHERE k.chain = $1
ORDER BY k.made_at;

-- name: insert_key
INSERT INTO plant.seal_key (fingerprint, public, made_at, succeeds, own_signature, former_signature, chain)
VALUES ($1, $2, $3, $4, $5, $6, $7)
ON CONFLICT DO NOTHING;

-- name: select_arrivals
-- Evidence of arrival: batches written since $1 whose times overlap $2 <= time < $3, by source and kind. A gap may be
-- open, or have been: batches of gaps reach to when they were written, as no later day was sealed by then.
SELECT b.source_id, b.kind, count(*) AS batches, sum(b.rows)::bigint AS rows, min(b.first_time) AS first_time,
       max(b.last_time) AS last_time, min(b.written_at) AS written_from, max(b.written_at) AS written_to
FROM plant.ingest_batch AS b
WHERE b.written_at >= $1::timestamptz AND b.first_time < $3::timestamptz
  AND CASE b.kind WHEN 'gaps' THEN b.written_at ELSE b.last_time END >= $2::timestamptz
GROUP BY b.source_id, b.kind;

-- name: select_removals
-- Removals recorded since $1 that overlap $2 <= time < $3: by delete_samples or by retention. channels: NULL for all.
SELECT e.type, e.time, (e.detail ->> 'from')::timestamptz AS begins, (e.detail ->> 'to')::timestamptz AS ends,
       coalesce(e.detail ->> 'what', 'raw') AS what, coalesce(e.detail ->> 'why', e.text) AS why,
       CASE
           WHEN jsonb_typeof(e.detail -> 'channel_ids') = 'string'
               THEN ARRAY(SELECT generate_series(lower(r.span), upper(r.span) - 1)
                          FROM unnest((e.detail ->> 'channel_ids')::int4multirange) AS r (span))
           WHEN jsonb_typeof(e.detail -> 'channels') = 'array'
               THEN ARRAY(SELECT jsonb_array_elements_text(e.detail -> 'channels')::int)
           WHEN e.channel_id IS NOT NULL THEN ARRAY[e.channel_id]
       END AS channels
FROM plant.event AS e
WHERE e.type IN ('deleted', 'retention') AND e.time >= $1::timestamptz
  AND (e.detail ->> 'from')::timestamptz < $3::timestamptz AND (e.detail ->> 'to')::timestamptz > $2::timestamptz;

-- name: select_channel_sources
-- Every source that a channel is or was read from.
SELECT DISTINCT v.channel_id AS id, v.source_id FROM plant.channel_version AS v;

-- name: select_receipts
-- Receipts of day $1, in the order in which they were written, and those of what retention dropped of it.
SELECT r.id, r.kind, r.content, r.written_at, r.signature
FROM plant.receipt AS r
WHERE (r.day = $1::date AND r.kind <> 'retention')
   OR (r.day > $1::date - 32 AND r.day <= $1::date AND r.kind = 'retention')
ORDER BY r.id;

-- name: replace_receipts
-- Remove receipts $1 of day $2, whose rows are sealed now; what is not yet stays: $3 samples,
-- $4 events (contents, or NULL).
WITH sealed AS (DELETE FROM plant.receipt AS r WHERE r.id = ANY ($1::bigint[]))
INSERT INTO plant.receipt (day, kind, content)
SELECT $2::date, c.kind, c.content
FROM (VALUES ('samples', $3::bytea), ('events', $4::bytea)) AS c (kind, content)
WHERE length(c.content) > 0;

-- name: select_retentions
-- Events of what retention dropped of $1 <= time < $2.
SELECT e.time, e.detail::text AS detail
FROM plant.event AS e
WHERE e.type = 'retention' AND e.time >= $1::timestamptz AND e.detail ? 'channel_ids'
  AND (e.detail ->> 'from')::timestamptz < $2::timestamptz AND (e.detail ->> 'to')::timestamptz > $1::timestamptz
ORDER BY e.time;

-- name: lock_sealed_days
-- Wait until nobody adds to a day of which plant.sealed_among did not yet say that it is being sealed; false:
-- try again.
SELECT pg_try_advisory_lock(7361023400155);

-- name: unlock_sealed_days
SELECT pg_advisory_unlock(7361023400155);

-- name: lock_packing
-- Excludes packing, which moves rows, until the session ends.
SELECT pg_advisory_lock(7361023400153);

-- name: delete_samples
-- $1 channels, $2 <= time < $3, $4 why. The caller amends the seals.
SELECT plant.delete_samples($1, $2, $3, $4)
FROM (SELECT set_config('plant.deletion', 'sealed', true) OFFSET 0) AS s;

-- name: select_changed_days
-- Sealed days of chain $1 that something came to. Those of which samples are only in the archive are left to the job
-- that archives.
SELECT DISTINCT s.day
FROM plant.day_seal AS s
JOIN plant.receipt AS r ON r.day = s.day AND r.kind <> 'retention'
WHERE s.revision = 0 AND s.chain = $1
  AND NOT EXISTS (SELECT FROM plant.archived_day AS a
                  WHERE a.day = s.day AND a.dropped_at IS NOT NULL AND a.installation = $1)
ORDER BY s.day;

-- name: select_matching_channels
-- Channels whose present or former name matches one of the patterns $1 (* stands for any text).
SELECT DISTINCT v.channel_id AS id
FROM plant.channel_version AS v
WHERE EXISTS (SELECT FROM unnest($1::text[]) AS p (pattern)
              WHERE v.name
                    LIKE replace(replace(replace(replace(p.pattern, '\', '\\'), '%', '\%'), '_', '\_'), '*', '%'));

-- name: select_names
-- The names that channels had from $1 to $2, with the present one, and since and until when in that interval.
SELECT n.channel_id AS id, n.name, c.name AS now, lower(s.span) AS since, upper(s.span) AS until
FROM (
    SELECT v.channel_id, v.name,
           range_agg(tstzrange(greatest(v.valid_from, $1::timestamptz), least(v.valid_to, $2::timestamptz))) AS spans
    FROM plant.channel_version AS v
    WHERE v.valid_from < $2::timestamptz AND v.valid_to > $1::timestamptz
    GROUP BY v.channel_id, v.name
) AS n
JOIN plant.channel AS c ON c.id = n.channel_id
CROSS JOIN LATERAL unnest(n.spans) AS s (span)
ORDER BY n.channel_id, s.span;
