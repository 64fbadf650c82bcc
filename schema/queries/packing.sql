-- Packing closed hours, and minutes of closed days, as owner. history/codec/packed_hours.py and
-- ops/maintenance/packing.py run them.

-- name: try_lock_packing
-- The lock of those that move or delete stored samples, until the transaction ends; false: another session has it.
SELECT pg_try_advisory_xact_lock(7361023400153) FROM (SELECT set_config('jit', 'off', true) OFFSET 0) AS s;

-- name: select_form
-- The form of closed data, and whether this edition has the columnstore. An illegal setting is an error.
SELECT plant.compression() AS form,
       to_regprocedure('plant._columnstore_chunks(timestamptz, boolean)') IS NOT NULL AS has_columnstore;

-- name: select_time_limit
-- Of the session's statements, in s; 0: none.
SELECT extract(epoch FROM current_setting('statement_timeout')::interval)::float8;

-- name: convert_to_columnstore
CALL plant._columnstore_chunks($1::timestamptz, only_begun => $2::boolean);

-- name: select_days
-- Days with rows that may be packed, of those that begin before $1; $2: only days with packed hours.
SELECT k.chunk, k.from_time, k.to_time
FROM plant._raw_chunks($1::timestamptz) AS k
WHERE NOT k.columnstored AND (k.packed OR NOT $2::boolean);

-- name: select_channels
-- Channels that have rows with $1 <= time < $2.
SELECT plant.channels_between('plant.samples_raw', 'time', $1::timestamptz, $2::timestamptz);

-- name: select_hour
-- The first hour of channels $1 that has rows with $2 <= time and is over before $3, and its channels.
SELECT h.hour, h.channels
FROM plant._hour_to_pack($1::int[], $2::timestamptz, $3::timestamptz) AS h
WHERE h.hour IS NOT NULL;

-- name: count_channels
-- How many of the channels $1 are packed in one transaction, of the hour $2.
SELECT plant._channels_to_pack($1::int[], $2::timestamptz);

-- name: has_packed_hours
SELECT EXISTS (SELECT FROM plant.samples_packed AS p WHERE p.hour >= $1::timestamptz AND p.hour < $2::timestamptz);

-- name: make_packed_chunk
-- $1 table, $2 time
SELECT plant.make_chunk($1::text::regclass, $2::timestamptz);

-- name: await_older_queries
-- $1 table, $2 s at most. Returns whether all queries know the table's chunks.
CALL plant._await_older_queries($1::text::regclass, make_interval(secs => $2::float8), NULL);

-- name: move_rows
-- For COPY: removes the rows of channels $3 with $1 <= time < $2.
DELETE FROM plant.samples_raw AS r
WHERE r.time >= $1::timestamptz AND r.time < $2::timestamptz AND r.channel_id = ANY ($3::int[])
RETURNING r.time, r.value, r.channel_id, r.status;

-- name: select_packed
-- The packed hour $1 of channels $2, in the columns of select_samples in evidence.sql.
SELECT p.channel_id, p.n, p.start, p.step, p.unit, p.base, p.divisor, p.single, p.status,
       ARRAY[array_send(p.t0), array_send(p.t1), array_send(p.t2), array_send(p.t3)] AS t,
       ARRAY[array_send(p.v0), array_send(p.v1), array_send(p.v2), array_send(p.v3)] AS v,
       array_send(p.float4s) AS float4s, array_send(p.float8s) AS float8s, array_send(p.statuses) AS statuses
FROM plant.samples_packed AS p
WHERE p.hour = $1::timestamptz AND p.channel_id = ANY ($2::int[])
ORDER BY p.channel_id;

-- name: delete_packed
-- The packed hour $1 of channels $2, which is written anew.
DELETE FROM plant.samples_packed AS p WHERE p.hour = $1::timestamptz AND p.channel_id = ANY ($2::int[]);

-- name: record_packed
-- The channels $1 int[], each once, have packed samples up to $2 timestamptz[].
WITH channel AS (
    INSERT INTO plant.packed_channel AS c (channel_id, until)
    SELECT u.channel_id, u.until FROM unnest($1::int[], $2::timestamptz[]) AS u (channel_id, until)
    ORDER BY u.channel_id
    ON CONFLICT (channel_id) DO UPDATE SET until = excluded.until WHERE c.until < excluded.until
)
UPDATE plant.packed_until AS u
SET until = n.until
FROM (SELECT max(t.until) AS until FROM unnest($2::timestamptz[]) AS t (until)) AS n
WHERE u.until < n.until;

-- name: forget_emptied_chunk
-- Rows of the time $1 were removed just now: older snapshots still see them.
DELETE FROM plant.packed_chunk AS c WHERE c.from_time <= $1::timestamptz AND c.to_time > $1::timestamptz;

-- name: select_emptied_chunks
WITH dropped AS (
    DELETE FROM plant.packed_chunk AS c WHERE to_regclass(c.chunk) IS NULL
)
SELECT c.chunk, c.from_time, c.to_time FROM plant.packed_chunk AS c WHERE to_regclass(c.chunk) IS NOT NULL;

-- name: drop_emptied_chunk
SELECT plant.drop_packed_chunk($1, $2::timestamptz, $3::timestamptz);

-- name: insert_conflicts
-- Events of samples that are refused because one with the same channel and time was first, with another value or
-- status: one a channel, with the first of its conflicts and their number. Returns how many are new.
-- $1 channel_id int[], $2 time int8[] (µs), $3 and $4 the kept value and status, $5 and $6 the refused ones.
WITH
differing AS (
    SELECT TIMESTAMPTZ 'epoch' + u.time * INTERVAL '1 microsecond' AS time, u.channel_id, u.status,
           jsonb_build_object('kept_value', u.kept::text, 'kept_status', plant.status_hex(u.kept_status),
                              'refused_value', u.value::text, 'refused_status', plant.status_hex(u.status)) AS detail
    FROM unnest($1::int[], $2::int8[], $3::float8[], $4::int[], $5::float8[], $6::int[])
        AS u (channel_id, time, kept, kept_status, value, status)
),
conflict AS (
    INSERT INTO plant.event (time, id, type, source_id, channel_id, status, detail)
    SELECT d.time, plant.conflict_id(d.time, d.channel_id, d.detail), 'conflict', c.source_id, d.channel_id,
           d.status, d.detail
    FROM (
        SELECT f.channel_id, min(f.time) AS time, (array_agg(f.status ORDER BY f.time))[1] AS status, count(*) AS n,
               (array_agg(f.detail ORDER BY f.time))[1]
               || CASE WHEN count(*) = 1 THEN '{}'
                       ELSE jsonb_build_object(
                           'refused', count(*), 'to', max(f.time),
                           'digest', md5(string_agg(concat_ws(' ', f.time, f.detail), ',' ORDER BY f.time))) END
                  AS detail
        FROM differing AS f
        GROUP BY f.channel_id
    ) AS d
    LEFT JOIN plant.channel AS c ON c.id = d.channel_id
    -- The writer may have recorded it before the hour was packed. It writes values in Python's notation.
    WHERE d.n > 1 OR NOT EXISTS (
        SELECT FROM plant.event AS e
        WHERE e.time = d.time AND e.channel_id = d.channel_id AND e.type = 'conflict' AND e.status = d.status
          AND (e.detail ->> 'refused_value')::float8::text = d.detail ->> 'refused_value'
    )
    ON CONFLICT (time, id) DO NOTHING
    RETURNING time, id
)
SELECT count(*), plant.receipt_of_events(coalesce(array_agg(c.time), '{}'), coalesce(array_agg(c.id), '{}'))
FROM conflict AS c;

-- name: try_lock_rollups
-- The lock of those that work on rollups, until the transaction ends; false: another session has it. Minutes of some
-- channels are looked up: statistics of a chunk that grows would mislead.
SELECT pg_try_advisory_xact_lock(7361023400154)
FROM (SELECT set_config('jit', 'off', true), set_config('enable_seqscan', 'off', true),
             set_config('enable_bitmapscan', 'off', true) OFFSET 0) AS s;

-- name: select_days_of_minutes
-- Days with rows of minutes that are over before $1 (NULL: closed) and of which none is dirty.
SELECT format('%I.%I', k.chunk_schema, k.chunk_name) AS chunk, k.range_start, k.range_end
FROM timescaledb_information.chunks AS k
WHERE k.hypertable_schema = 'plant' AND k.hypertable_name = 'rollup_1m'
  AND k.range_end <= coalesce($1::timestamptz, plant.closed_until())
  AND NOT EXISTS (SELECT FROM plant.rollup_dirty AS d
                  WHERE NOT d.hours AND d.from_time < k.range_end AND d.to_time > k.range_start)
ORDER BY k.range_start;

-- name: select_channels_of_minutes
-- Channels that are packed in one transaction, of the chunk $1 with the times from $2 to $3: those behind the channels
-- that are packed; at the end the ones with late minutes.
WITH next AS MATERIALIZED (
    SELECT plant.channels_between('plant.rollup_1m', 'bucket', $2::timestamptz, $3::timestamptz,
                                  (SELECT c.packed_to FROM plant.rollup_chunk AS c WHERE c.chunk = $1::text), 50)
           AS channels
)
SELECT CASE WHEN n.channels <> '{}' THEN n.channels
            ELSE plant.channels_between('plant.rollup_1m', 'bucket', $2::timestamptz, $3::timestamptz, NULL, 50) END
FROM next AS n;

-- name: has_packed_minutes
SELECT EXISTS (SELECT FROM plant.rollup_1m_packed AS p WHERE p.day = $1::timestamptz);

-- name: move_minutes
-- For COPY: removes the minutes of channels $2 on the day from $1; those that are packed, too, if some came meanwhile.
-- A missing value is 0, a missing time -infinity; values: how many are there, 4 or none.
WITH
packed AS (
    DELETE FROM plant.rollup_1m_packed AS p WHERE p.day = $1::timestamptz AND p.channel_id = ANY ($2::int[]) RETURNING p
),
row AS (
    DELETE FROM plant.rollup_1m AS r
    WHERE r.channel_id = ANY ($2::int[]) AND r.bucket >= $1::timestamptz
      AND r.bucket < $1::timestamptz + INTERVAL '24 hours'
    RETURNING r.*
),
minute AS (
    SELECT r.* FROM row AS r
    UNION ALL
    SELECT u.* FROM packed CROSS JOIN LATERAL plant.unpack_minutes(packed.p, '-infinity', 'infinity') AS u
)
SELECT m.channel_id, m.n, m.n_good, m.holds::int, m.bucket, m.known, coalesce(m.first_time, '-infinity'),
       coalesce(m.last_time, '-infinity'), coalesce(m.min, 0), coalesce(m.max, 0), coalesce(m.first, 0),
       coalesce(m.last, 0), m.sum, m.area, num_nonnulls(m.min, m.max, m.first, m.last) AS values
FROM minute AS m;

-- name: record_packed_minutes
-- The chunk $1 is packed up to the channel $2.
INSERT INTO plant.rollup_chunk AS c (chunk, packed_to) VALUES ($1::text, $2::int)
ON CONFLICT (chunk) DO UPDATE SET packed_to = excluded.packed_to, emptied = NULL;

-- name: drop_emptied_minutes
SELECT plant.drop_rollup_chunk($1::text);

-- name: forget_dropped_minutes
DELETE FROM plant.rollup_chunk AS c WHERE to_regclass(c.chunk) IS NULL;
