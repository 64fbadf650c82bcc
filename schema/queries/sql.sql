-- What `plantlog sql` reads of the database, as the reader. history/sql runs these.

-- name: select_days
-- Days that may have rows in the hypertables $1 (in_database), or that are archived.
SELECT d.day, bool_or(d.in_database) AS in_database
FROM (
    SELECT (d.time AT TIME ZONE 'UTC')::date AS day, true AS in_database
    FROM timescaledb_information.chunks AS k
    CROSS JOIN generate_series(date_trunc('day', k.range_start, 'UTC'), k.range_end - INTERVAL '1 microsecond',
                               INTERVAL '1 day')
        AS d (time)
    WHERE k.hypertable_schema = 'plant' AND k.hypertable_name = ANY ($1::text[])
    UNION ALL
    SELECT a.day, false FROM plant.archived_day AS a
) AS d
GROUP BY d.day
ORDER BY d.day;

-- name: select_archived
-- Who archived the days $1, and where; of which channels the database has all samples.
-- Changes if samples of a day are dropped.
SELECT a.day, a.installation AS number, i.id AS installation, a.location, a.revision, encode(a.root, 'hex') AS root,
       a.dropped_at IS NOT NULL AS dropped,
       ARRAY(SELECT c.channel_id FROM plant.archived_channel AS c
             WHERE c.day = a.day AND c.installation = a.installation AND c.whole ORDER BY c.channel_id) AS whole
FROM plant.archived_day AS a
JOIN plant.installation AS i ON i.number = a.installation
WHERE a.day = ANY ($1::date[])
ORDER BY a.day, a.installation;

-- name: select_archived_until
-- The newest day of which samples are only in the archive.
SELECT max(a.day) FROM plant.archived_day AS a WHERE a.dropped_at IS NOT NULL AND a.samples > 0;

-- name: select_in_archive
-- Those of the channels $3 whose stored samples of day $1 are all in the archive of installation $2: by the rule by
-- which retention may drop them (routines/retention/drop_slice.sql).
SELECT a.channel_id
FROM plant.archived_channel AS a
JOIN plant.stored_hours($3::int[], $1::date::timestamp AT TIME ZONE 'UTC',
                        ($1::date + 1)::timestamp AT TIME ZONE 'UTC') AS h
    ON h.day = a.day AND h.channel_id = a.channel_id
WHERE a.day = $1 AND a.installation = $2 AND a.n = h.n;

-- name: select_meanings
-- What channels meant over time: the µs since 1970 from which on (NULL: from the beginning), name, and unit.
SELECT v.channel_id,
       CASE WHEN isfinite(v.valid_from) THEN (extract(epoch FROM v.valid_from) * 1000000)::bigint END AS valid_from,
       v.name, v.unit
FROM plant.channel_version AS v
WHERE v.valid_from IS NOT NULL
ORDER BY v.channel_id, v.valid_from;

-- name: select_channel_ids
SELECT coalesce(array_agg(c.id ORDER BY c.id), '{}') FROM plant.channel AS c;

-- name: select_events_dropped_until
-- Events before this time may be only in an archive; NULL: none was dropped.
SELECT max(d.until) FROM plant.dropped AS d WHERE d.what = 'event';

-- name: select_minutes
-- samples_1m of channels $1, $2 <= bucket < $3.
SELECT m.*
FROM plant.means_between(INTERVAL '1 minute', $2::timestamptz, $3::timestamptz) AS m
WHERE m.channel_id = ANY ($1::int[])
ORDER BY m.channel_id, m.bucket;

-- name: select_hours
-- samples_1h of the same.
SELECT m.*
FROM plant.means_between(INTERVAL '1 hour', $2::timestamptz, $3::timestamptz) AS m
WHERE m.channel_id = ANY ($1::int[])
ORDER BY m.channel_id, m.bucket;

-- name: select_gap
SELECT g.id, g.source_id, g.channel_id, g.from_time, g.to_time, g.reason, g.backfilled_at, g.detail, g.revision,
       g.opened_at
FROM plant.gap AS g
ORDER BY g.from_time, g.id;

-- name: select_channel
-- Channels $1 (NULL: all).
SELECT c.id, c.name, c.source_id, c.address, c.kind, c.unit, c.range_lo, c.range_hi, c.deadband, c.description,
       c.attributes::text AS attributes, c.retired_at, c.retention, c.configured_at
FROM plant.channel AS c
WHERE $1::int[] IS NULL OR c.id = ANY ($1::int[])
ORDER BY c.id;

-- name: select_source
SELECT s.id, s.name, s.kind, s.address, s.state, s.state_since, s.reason, s.attributes::text AS attributes,
       s.retired_at, s.installation_id::text AS installation_id
FROM plant.source AS s
ORDER BY s.id;

-- name: select_channel_version
-- What channels $1 (NULL: all) meant over time.
SELECT v.channel_id, v.valid_from, v.valid_to, v.name, v.unit
FROM plant.channel_version AS v
WHERE v.valid_from IS NOT NULL AND ($1::int[] IS NULL OR v.channel_id = ANY ($1::int[]))
ORDER BY v.channel_id, v.valid_from;

-- name: select_described_channel
-- Channels $1 (NULL: all) of plant.channels_like, which the setting plant.installation limits, and what else questions
-- ask of them.
SELECT l.channel_id, l.name, l.kind, l.unit, l.low, l.high, l.span, l.unit_path, l.quantity, l.ends, c.source_id,
       s.kind AS source_kind, i.seconds AS expected, c.configured_at,
       (c.attributes ->> 'wraps_at')::float8 AS wraps_at
FROM plant.channels_like(NULL) AS l
JOIN plant.channel AS c ON c.id = l.channel_id
JOIN plant.source AS s ON s.id = c.source_id
LEFT JOIN plant.channel_interval AS i ON i.channel_id = l.channel_id
WHERE $1::int[] IS NULL OR l.channel_id = ANY ($1::int[])
ORDER BY l.channel_id;

-- name: select_matching_channels
-- The ids of the channels that match the patterns $1.
SELECT coalesce(array_agg(l.channel_id ORDER BY l.channel_id), '{}') FROM plant.channels_like($1::text[]) AS l;

-- name: select_shortest_interval
-- In s, of the channels that match the patterns $1 (NULL: all).
SELECT min(i.seconds)
FROM plant.channels_like($1::text[]) AS l
JOIN plant.channel_interval AS i ON i.channel_id = l.channel_id;

-- name: select_have_sample_before
-- Whether the database has a sample of each of the channels $1 before each of the times $2, in their order.
SELECT plant.has_sample_before(c.id, c.before)
FROM unnest($1::int[], $2::timestamptz[]) WITH ORDINALITY AS c (id, before, ordinal)
ORDER BY c.ordinal;

-- name: select_held_text
-- The last good text of channel $1, $2 <= time < $3.
SELECT e.text
FROM plant.event AS e
WHERE e.channel_id = $1::int AND e.type = 'text' AND coalesce(e.status, 0) >= 0 AND e.time >= $2::timestamptz
  AND e.time < $3::timestamptz
ORDER BY e.time DESC, e.id DESC
LIMIT 1;

-- name: select_dropped_days
-- Archived days that begin before $1 and of which samples were dropped, newest first.
SELECT DISTINCT a.day FROM plant.archived_day AS a
WHERE a.dropped_at IS NOT NULL AND a.day < $1::timestamptz AT TIME ZONE 'UTC'
ORDER BY a.day DESC;

-- name: select_event_types
-- The types of events, by the index: there are few types and many events.
WITH RECURSIVE types AS (
    SELECT (SELECT min(e.type) FROM plant.event AS e) AS type
    UNION ALL
    SELECT (SELECT min(e.type) FROM plant.event AS e WHERE e.type > t.type) FROM types AS t WHERE t.type IS NOT NULL
)
SELECT t.type FROM types AS t WHERE t.type IS NOT NULL;

-- name: select_days_of_events
-- Those of the days $1 that have events of the types $2 (NULL: any).
SELECT d.day
FROM unnest($1::date[]) AS d (day)
CROSS JOIN LATERAL (
    SELECT FROM plant.event AS e
    WHERE e.time >= d.day::timestamp AT TIME ZONE 'UTC' AND e.time < (d.day + 1)::timestamp AT TIME ZONE 'UTC'
      AND ($2::text[] IS NULL OR e.type = ANY ($2::text[]))
    LIMIT 1
) AS e;

-- name: select_events_of
-- Events of the types $3 (NULL: any), $1 <= time < $2.
SELECT e.time, e.id, e.type, e.source_id, e.channel_id, e.status, e.text, e.detail::text AS detail
FROM plant.event AS e
WHERE e.time >= $1::timestamptz AND e.time < $2::timestamptz AND ($3::text[] IS NULL OR e.type = ANY ($3::text[]))
ORDER BY e.time, e.id;

-- name: select_retirement
-- Past periods in which channels were retired.
SELECT c.id AS channel_id, coalesce(lower(r.period), '-infinity') AS from_time,
       coalesce(upper(r.period), 'infinity') AS to_time
FROM plant.channel AS c
CROSS JOIN LATERAL unnest(c.retirements) AS r (period)
ORDER BY c.id, from_time;

-- name: select_quarantined_channels
-- Channels with samples in quarantine, of those that were received with since <= time < until.
SELECT array_agg(DISTINCT q.channel_id ORDER BY q.channel_id)
FROM plant.quarantine AS q
WHERE q.channel_id IS NOT NULL AND NOT q.detail ?| ARRAY['event', 'gap', 'count'] AND q.received_at >= $1
  AND q.received_at < $2;

-- name: select_quarantine
-- Samples in quarantine.
SELECT q.channel_id, q.received_at
FROM plant.quarantine AS q
WHERE q.channel_id IS NOT NULL AND NOT q.detail ?| ARRAY['event', 'gap', 'count']
ORDER BY q.received_at;
