-- What `plantlog sql` makes in DuckDB: settings, views and macros. The tables stored_samples, event, samples_1m,
-- samples_1h, gap, channel, source, channel_version, described_channel, retirement and quarantine are those of
-- history/sql/sources/tables.py; what is defined nowhere here is a function of history/sql/functions.py.

-- name: settings
SET TimeZone = 'UTC';
SET python_enable_replacements = false;
SET autoinstall_known_extensions = false;
SET autoload_known_extensions = false;
-- As PostgreSQL orders them: NULL is above all values.
SET default_null_order = 'postgres';

-- name: views
CREATE VIEW samples AS
SELECT s.time, s.channel_id, s.value, s.status FROM stored_samples AS s;

-- The start of a bucket of so many µs, of the minute, hour or day (UTC). Before 1970, // would be that of the next one.
-- date_trunc looks at the time zone, which takes ten times as long.
CREATE MACRO bucket_of(time, width) AS make_timestamptz(floor(epoch_us(time) / width)::BIGINT * width);
CREATE MACRO minute_of(time) AS bucket_of(time, 60000000);
CREATE MACRO hour_of(time) AS bucket_of(time, 3600000000);
CREATE MACRO day_of(time) AS bucket_of(time, 86400000000);

CREATE MACRO seconds_between(from_time, to_time) AS (epoch_us(to_time) - epoch_us(from_time)) / 1e6;

CREATE MACRO quality(status) AS CASE (status >> 30) & 3 WHEN 0 THEN 'good' WHEN 1 THEN 'uncertain' WHEN 2 THEN 'bad'
                                                              WHEN 3 THEN 'bad' END;
CREATE MACRO status_hex(status) AS '0x' || upper(lpad(to_hex(status & 4294967295), 8, '0'));

CREATE VIEW samples_named AS
SELECT s.time, s.name, s.value, s.unit, quality(s.status) AS quality, s.status, s.channel_id
FROM stored_samples AS s
WHERE s.name IS NOT NULL;

-- Gaps by channel: one of a whole source is one of each of its channels.
CREATE VIEW gap_channel AS
SELECT g.id AS gap_id, c.id AS channel_id, g.source_id, g.from_time, g.to_time, g.reason, g.detail, g.backfilled_at
FROM gap AS g
JOIN channel AS c ON c.source_id = g.source_id AND (g.channel_id IS NULL OR g.channel_id = c.id)
WHERE g.to_time IS DISTINCT FROM g.from_time;

-- name: texts
-- These macros and the next ones are made with the functions, once a query needs one; for a question, those that it
-- names.

-- As PostgreSQL writes a float8: 40, 46.5, 1e+15.
CREATE MACRO number_text(number) AS
CASE WHEN abs(number) >= 1e15 AND abs(number) < 1e16
     THEN regexp_replace(rtrim(replace(number::VARCHAR, '.', ''), '0'), '^(-?\d)(\d*)$', '\1.\2e+15').replace('.e', 'e')
     ELSE regexp_replace(number::VARCHAR, '\.0$', '') END;

-- With three digits after the point. As in PostgreSQL, whose numeric has 15 digits of a float8.
CREATE MACRO rounded_text(number) AS
format('{:.15g}', CASE WHEN abs(number) >= 1e15 THEN number
                       ELSE round(format('{:.15g}', number)::DECIMAL(38, 20), 3)::DOUBLE END);

CREATE MACRO iso_text(time) AS strftime(time AT TIME ZONE 'UTC', '%Y-%m-%dT%H:%M:%SZ');

CREATE MACRO trim_scale(number) AS regexp_replace(number::VARCHAR, '\.?0*$', '');

CREATE MACRO detail_text(detail) AS (
    SELECT string_agg(replace(w.key, '_', ' ') || ' ' || w.words, ', ' ORDER BY w.ordinal)
    FROM (
        SELECT v.key, v.ordinal, nullif(CASE
            WHEN v.type = 'number' AND regexp_matches(v.key, '(^|_)(since|until|at|from|to|time|us)$')
                 AND abs(v.text::DOUBLE) >= 1e14
                THEN strftime(make_timestamp(round(v.text::DOUBLE)::BIGINT), '%Y-%m-%d %H:%M:%S UTC')
            WHEN v.type = 'number' AND abs(v.text::DOUBLE) >= 0.001
                THEN coalesce(trim_scale(TRY_CAST(v.text AS DECIMAL(38, 6))), v.text)
            WHEN v.type = 'number' AND v.text::DOUBLE <> 0 THEN trim_scale(v.text::DECIMAL(38, 37))
            WHEN v.type = 'string'
                 AND regexp_full_match(v.text, '\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d(:\d\d)?)')
                THEN strftime(v.text::TIMESTAMPTZ AT TIME ZONE 'UTC', '%Y-%m-%d %H:%M:%S UTC')
            WHEN v.type = 'boolean' THEN CASE WHEN v.text::BOOLEAN THEN 'yes' ELSE 'no' END
            WHEN v.type = 'object' THEN NULL -- differences between old and new: the text of the event has them
            WHEN v.type = 'array' THEN array_to_string(v.value->>'$[*]', ' ')
            ELSE v.text END, '') AS words
        FROM (SELECT d.key, d.id AS ordinal, d.value, d.value->>'$' AS text,
                     CASE WHEN d.type = 'VARCHAR' THEN 'string'
                          WHEN d.type IN ('UBIGINT', 'BIGINT', 'DOUBLE') THEN 'number'
                          ELSE lower(d.type) END AS type
              FROM json_each(detail) AS d) AS v
    ) AS w
    WHERE w.words IS NOT NULL AND w.key NOT IN ('state', 'active', 'revision', 'text_escaped')
);

-- name: macros
-- What the questions (schema/questions) are made of, some under the names that functions and views have in PostgreSQL.
-- A parameter patterns is a list of names, in which * stands for any text; NULL: every channel. since <= time < until.

-- A list of times, in µs.
CREATE MACRO in_us(times) AS list_transform(times, lambda time: epoch_us(time));

-- The start of the step that a time is in, counted from origin. time_bucket would take ten times as long.
CREATE MACRO date_bin(step, time, origin) AS make_timestamptz(
    floor((epoch_us(time) - epoch_us(origin)) / epoch_us(step)::DOUBLE)::BIGINT * epoch_us(step) + epoch_us(origin)
);

-- As plant.unit_of.
CREATE MACRO unit_of(channel) AS regexp_replace(channel, '/[^/]*$', '');

-- What kernels say about a channel (history/sql/kernels/reference.py); NULL, of 0: it is a row of the answer.
-- Channels that they do not know have no samples.
CREATE MACRO verdict_text(verdict) AS CASE coalesce(verdict, 3)
    WHEN 1 THEN 'judged'
    WHEN 2 THEN 'judged without large changes in their reference, which may be faults or usual'
    WHEN 3 THEN 'not judged, no samples in the interval'
    WHEN 4 THEN 'not judged, too few samples in the reference'
    WHEN 5 THEN 'judged though most of their reference has no samples'
    WHEN 6 THEN 'judged though a part of their reference is unlike the rest: choose another one'
    WHEN 7 THEN 'not judged, constant in the reference'
    WHEN 8 THEN 'not judged, move with no other of their unit, nor with sisters, beyond chance in the reference'
    WHEN 9 THEN 'not judged, too few samples in the interval'
    WHEN 10 THEN 'judged as far as the reference goes, which is shorter'
    WHEN 11 THEN 'judged though they drift all through their reference: '
                 || 'one as long as a slow swing, such as a day, tells it from an event'
    WHEN 12 THEN 'judged though their reference holds fewer than 5 of their cycles: choose a longer one'
    WHEN 13 THEN 'judged by the interval alone, too few samples in the reference'
    WHEN 14 THEN 'judged by what they usually do at each point of their cycles'
    WHEN 15 THEN 'judged though a part of their reference is unlike the rest, and was left out'
    WHEN 16 THEN 'not judged, codes of more than two states, whose numbers have no scale'
    WHEN 17 THEN 'not judged, constant in the interval'
    WHEN 18 THEN 'not judged, the target is a text, or constant, or has too few samples in the interval'
    WHEN 19 THEN 'judged without changes like one of their reference, which may be a fault or usual: '
                 || 'choose a longer one' END;

-- The unit of measurement that a channel had at a time. patterns: it is among these, so that others are not read.
CREATE MACRO unit_at(channel, "at", patterns := NULL) AS (
    SELECT arg_max(v.unit, v.valid_from)
    FROM channel_version AS v
    WHERE v.channel_id = channel AND v.valid_from <= "at"
      AND (patterns IS NULL OR v.channel_id IN channel_ids(patterns))
);

-- Channels: kind, unit, range (low, high, span), the part of the name before its last slash (unit_path) and behind it
-- (quantity), when it was retired (ends; infinity: it was not), where a counter starts again (wraps_at), source, and
-- whether nobody knows when a sample is due, so that a silence is no recorded gap (pushed).
CREATE MACRO channels_like(patterns) AS TABLE
SELECT c.channel_id, c.name, c.kind, c.unit, c.low, c.high, c.span, c.unit_path, c.quantity, c.ends, c.wraps_at,
       c.source_id, coalesce(c.source_kind = 'push', false) AS pushed
FROM described_channel AS c
WHERE patterns IS NULL OR c.channel_id IN channel_ids(patterns);

-- gap_channel of some channels.
CREATE MACRO gaps_of(patterns) AS TABLE
SELECT g.* FROM gap_channel AS g WHERE patterns IS NULL OR g.channel_id IN channel_ids(patterns);

-- Samples. channel_ids is computed before the query runs: only the samples of these channels are read.
CREATE MACRO samples_of(patterns, since, until) AS TABLE
SELECT s.channel_id, s.time, s.value, s.status
FROM samples AS s
WHERE s.time >= since AND s.time < until AND (patterns IS NULL OR s.channel_id IN channel_ids(patterns));

-- Samples that are Good or Uncertain, of less than 1e50; below 1e-50 they are 0.
CREATE MACRO good_samples(patterns, since, until) AS TABLE
SELECT s.channel_id, s.time, CASE WHEN abs(s.value) < 1e-50 THEN 0 ELSE s.value END AS value
FROM samples_of(patterns, since, until) AS s
WHERE s.status >= 0        -- Bad is negative
  AND abs(s.value) < 1e50; -- NaN is above infinity here, too

-- Intervals without pauses of channels, with their samples counted before DuckDB has them. One interval may have
-- several rows.
CREATE MACRO intervals_of(patterns, since, until, pause) AS TABLE
SELECT unnest(sample_intervals(channel_ids(patterns), epoch_us(since), epoch_us(until),
                               coalesce(epoch_us(pause::INTERVAL), 9223372036854775807)), recursive := true);

-- Runs of samples of one value, until that of the next one: those of least or longer, and the first two and the last of
-- each of the channels (a list of ids; NULL: all). Samples that good_samples has not are runs of infinity: the value is
-- unknown. number counts all of the channel's.
CREATE MACRO runs_of(ids, since, until, least) AS TABLE
SELECT r.* REPLACE (nullif(r.next_time, 'infinity') AS next_time)
FROM (SELECT unnest(value_runs(ids, epoch_us(since), epoch_us(until), epoch_us(least)), recursive := true)) AS r;

-- Changes of quality and steps: another value than that of the good sample before. All steps of a channel that has few
-- at most; of the others the last one and those that are jumps: larger than what is exceeded once in false_alarms by
-- steps of the reference, unless the step before was so, too. steps counts all of the channel's.
CREATE MACRO steps_of(patterns, reference, since, until, few, false_alarms) AS TABLE
SELECT unnest(value_steps(channel_ids(patterns), in_us(reference), epoch_us(since), epoch_us(until), few::BIGINT,
                          epoch_us(false_alarms)::DOUBLE), recursive := true);

-- Gaps, without the regular ones of a device that answers more slowly than it is polled: a poll_missed that adjoins
-- another one, where there are five of those, and that is at most three times as long as their median.
CREATE MACRO chart_gaps(patterns, since, until) AS TABLE
WITH
gaps AS (
    SELECT g.channel_id, g.from_time, g.to_time, g.reason, g.detail, g.backfilled_at IS NOT NULL AS backfilled,
           g.reason = 'poll_missed' AND (g.from_time = lag(g.to_time) OVER by_reason
                                         OR g.to_time = lead(g.from_time) OVER by_reason) AS in_turn
    FROM gaps_of(patterns) AS g
    WHERE g.from_time < until + INTERVAL '10 min' AND coalesce(g.to_time, 'infinity') > since - INTERVAL '10 min'
    WINDOW by_reason AS (PARTITION BY g.channel_id, g.reason ORDER BY g.from_time)
),
usual_lengths AS (
    SELECT g.channel_id, quantile_cont((epoch_us(g.to_time) - epoch_us(g.from_time))::DOUBLE, 0.5) AS length
    FROM gaps AS g
    WHERE g.in_turn
    GROUP BY g.channel_id
    HAVING count(*) >= 5
)
SELECT g.channel_id, g.from_time, g.to_time, g.reason, g.detail, g.backfilled
FROM gaps AS g
LEFT JOIN usual_lengths AS r ON r.channel_id = g.channel_id AND g.in_turn
WHERE g.from_time < until AND coalesce(g.to_time, 'infinity') > since
  AND (epoch_us(g.to_time) - epoch_us(g.from_time) <= 3 * r.length) IS NOT TRUE;

-- Intervals in which a device repeated a timestamp (at), from the first conflict to the next sample: the stored value,
-- and how many others were refused.
CREATE MACRO frozen_timestamps(since, until) AS TABLE
WITH
conflicts AS (
    SELECT e.channel_id, (e.detail ->> 'at')::TIMESTAMPTZ AS at, min(e.time) AS from_time,
           max((e.detail ->> 'refused')::BIGINT) AS refused, min(e.detail ->> 'kept_value')::DOUBLE AS value
    FROM event AS e
    WHERE e.type = 'conflict' AND e.text = 'time stands still' AND e.time >= since - INTERVAL '7 days'
      AND e.time < until
    GROUP BY ALL
),
ended AS (
    SELECT s.*,
           coalesce(first_sample(s.channel_id, s.at + INTERVAL '1 microsecond', until), 'infinity'::TIMESTAMPTZ)
               AS to_time
    FROM conflicts AS s
)
SELECT n.channel_id, n.at, n.value, n.from_time, n.to_time, n.refused
FROM ended AS n
WHERE n.to_time > since AND n.to_time > n.from_time;

-- Intervals whose samples are in quarantine, n of them: from the arrival of the first to the next stored one.
CREATE MACRO quarantined_intervals(patterns, since, until) AS TABLE
WITH
-- A sample quarantined in the hour before may still leave the value unknown.
quarantined AS (
    SELECT q.channel_id, q.received_at
    FROM quarantine AS q
    WHERE q.received_at >= since - INTERVAL '1 hour' AND q.received_at < until
),
readings AS (
    SELECT c.channel_id, c.received_at AS time, false AS stored FROM quarantined AS c
    UNION ALL
    SELECT s.channel_id, s.time, true
    FROM samples_of(patterns, since - INTERVAL '1 hour', until) AS s
    WHERE s.channel_id IN quarantined_channels(since - INTERVAL '1 hour', until)
),
with_next AS (
    SELECT r.channel_id, r.time, r.stored,
           min(r.time) FILTER (WHERE r.stored) OVER (PARTITION BY r.channel_id ORDER BY r.time DESC, r.stored) AS next
    FROM readings AS r
)
SELECT a.channel_id, max(greatest(since, a.first)) AS from_time, max(coalesce(a.next, least(until, now()))) AS to_time,
       sum(a.n)::BIGINT AS n
FROM (SELECT a.channel_id, a.next, min(a.time) AS first, sum((a.time >= since)::INT) AS n
      FROM with_next AS a
      WHERE NOT a.stored AND coalesce(a.next, until) > since
      GROUP BY a.channel_id, a.next) AS a
GROUP BY a.channel_id, a.next;

-- Channels with numbers as functions take them (fields): with their kinds and ranges, when they end, and the gaps in
-- which no value holds.
CREATE MACRO channels_with_gaps(patterns, since, until) AS TABLE
WITH gaps AS (
    SELECT g.channel_id, list(epoch_us(g.from_time) ORDER BY g.from_time) AS begins,
           list(coalesce(epoch_us(g.to_time), 9223372036854775807) ORDER BY g.from_time) AS ends
    FROM gaps_of(patterns) AS g
    WHERE g.from_time < until AND coalesce(g.to_time, 'infinity'::TIMESTAMPTZ) > since AND g.backfilled_at IS NULL
    GROUP BY g.channel_id
)
SELECT c.channel_id, c.name, c.kind,
       {'channel_id': c.channel_id, 'kind': c.kind, 'span': c.span, 'wraps_at': c.wraps_at,
        'ends': epoch_us(least(until, now(), c.ends)),
        'gaps_from': coalesce(g.begins, []::BIGINT[]), 'gaps_to': coalesce(g.ends, []::BIGINT[]),
        'pushed': c.pushed} AS fields
FROM channels_like(patterns) AS c
LEFT JOIN gaps AS g ON g.channel_id = c.channel_id
WHERE c.kind <> 'text';

-- The fields of channels of some kinds (NULL: all) in one row; no row: there are none.
CREATE MACRO fields_of(patterns, since, until, kinds) AS TABLE
SELECT list(g.fields) AS fields
FROM channels_with_gaps(patterns, since, until) AS g
WHERE kinds IS NULL OR g.kind IN kinds
HAVING count(*) > 0;

-- First moves of channels in an interval (verdict 0), and what is said about each channel (verdict_text). Samples are
-- read until the reference ends, which may be behind the interval.
CREATE MACRO moves_of(patterns, reference, since, until, step, false_alarms, sigmas) AS TABLE
SELECT m.*
FROM (SELECT unnest(first_moves(a.fields, list_transform(reference, lambda bound: epoch_us(bound)), epoch_us(since),
                                epoch_us(until), epoch_us(step), epoch_us(false_alarms)::DOUBLE, sigmas),
                    recursive := true)
      FROM fields_of(patterns, reference[1] - INTERVAL '1 hour', greatest(until, reference[2]), NULL) AS a) AS m
WHERE m.verdict > 0 OR m.time < until;

-- Decreases of counters that are no wrap: the samples before and after.
CREATE MACRO counter_decreases(patterns, since, until) AS TABLE
SELECT d.channel_id, c.name, d.old_time, d.time, d.old_value, d.value
FROM (SELECT unnest(counter_decreases_of(a.fields, epoch_us(since), epoch_us(until)), recursive := true)
      FROM fields_of(patterns, since, until, ['counter']) AS a) AS d
JOIN channels_like(patterns) AS c ON c.channel_id = d.channel_id;

-- What a row of an answer is compared by with those of days before. Times in µs.
CREATE MACRO occurrence(kind, begins, ends, size) AS
    {'kind': kind::VARCHAR, 'begins': epoch_us(begins), 'ends': epoch_us(ends), 'size': size::DOUBLE};

-- name: create_days_before
CREATE TEMP TABLE days_before AS SELECT 0 AS day, channel, occurrence FROM portion_rows LIMIT 0;

-- name: create_habits
-- Rows of the answer whose like came on two of the days before: within a quarter of an hour, as far, and no longer. The
-- limit of what is usual is a fifth above what a reference has, too. Each row is looked for in three quarters. Of a
-- channel with more than a thousand rows each would have a like by chance, and be compared with thousands.
CREATE TEMP VIEW comparable AS
SELECT r.rowid AS number, r.channel, r.occurrence
FROM portion_rows AS r
WHERE r.occurrence IS NOT NULL
QUALIFY count(*) OVER (PARTITION BY r.channel) <= 1000;

CREATE TEMP VIEW habits AS
WITH
compared AS (
    SELECT r.number, r.channel, unnest(r.occurrence), r.occurrence.begins // 900000000 AS quarter FROM comparable AS r
),
earlier AS (
    SELECT b.day, b.channel, b.kind, b.size, b.begins + b.day * 86400000000 AS begins,
           b.ends + b.day * 86400000000 AS ends, (b.begins + b.day * 86400000000) // 900000000 + b.beside AS quarter
    FROM (SELECT d.day, d.channel, unnest(d.occurrence), unnest([-1, 0, 1]) AS beside
          FROM days_before AS d
          WHERE d.occurrence IS NOT NULL) AS b
)
SELECT c.number, c.channel
FROM compared AS c
JOIN earlier AS e ON e.channel = c.channel AND e.kind = c.kind AND e.quarter = c.quarter
WHERE abs(c.begins - e.begins) <= 900000000 AND c.ends <= e.ends + 900000000
  AND sign(c.size) = sign(e.size) AND abs(c.size) <= 1.2 * abs(e.size)
GROUP BY ALL
HAVING count(DISTINCT e.day) >= 2;

-- name: select_channels_without_habit
SELECT DISTINCT r.channel
FROM comparable AS r
WHERE r.number NOT IN (SELECT h.number FROM habits AS h);

-- name: delete_habits
DELETE FROM portion_rows WHERE rowid IN (SELECT h.number FROM habits AS h) RETURNING channel;

-- name: select_judged
-- The channels $1 (patterns; NULL: all) by name, and whether they have samples with $2 <= time < $3.
SELECT c.name, c.kind, s.channel_id IS NOT NULL AS has_samples
FROM channels_like($1::TEXT[]) AS c
LEFT JOIN (SELECT DISTINCT channel_id
           FROM intervals_of($1::TEXT[], $2::TIMESTAMPTZ, $3::TIMESTAMPTZ, NULL)) AS s ON s.channel_id = c.channel_id
ORDER BY c.name;

-- name: select_curves
-- Good samples of channels $1 (patterns) with $2 <= time < $3 in buckets of $4 µs, for a drawing. Behind a bucket whose
-- last sample is not good, there is a row without values: nothing holds from then on.
WITH
samples AS (
    SELECT s.channel_id, s.unit, s.time, CASE WHEN s.status >= 0 AND abs(s.value) < 1e50 THEN s.value END AS value
    FROM stored_samples AS s
    WHERE s.channel_id IN channel_ids($1::TEXT[]) AND s.time >= $2::TIMESTAMPTZ AND s.time < $3::TIMESTAMPTZ
),
buckets AS (
    SELECT s.channel_id, s.unit, bucket_of(s.time, $4::BIGINT) AS begins, max(s.time) AS last,
           min(s.time) FILTER (s.value IS NOT NULL) AS first_good,
           max(s.time) FILTER (s.value IS NOT NULL) AS last_good,
           min(s.value) AS min, avg(s.value) AS avg, max(s.value) AS max
    FROM samples AS s
    GROUP BY ALL
)
SELECT c.name, p.unit, p.time, p.min, p.avg, p.max
FROM (SELECT b.channel_id, b.unit, b.first_good AS time, b.min, b.avg, b.max
      FROM buckets AS b
      WHERE b.first_good IS NOT NULL
      UNION ALL
      SELECT b.channel_id, b.unit, b.last, NULL, NULL, NULL FROM buckets AS b WHERE b.last IS DISTINCT FROM b.last_good
     ) AS p
JOIN channels_like($1::TEXT[]) AS c ON c.channel_id = p.channel_id
ORDER BY c.name, p.time;

-- name: select_held
-- Values that channels $1 (patterns) hold at $3, as rows of select_curves: those of their last samples from $2 on,
-- where these are good and no gap came after them.
WITH
last_samples AS (
    SELECT s.channel_id, max(s.time) AS time, arg_max(s.value, s.time) AS value, arg_max(s.status, s.time) AS status
    FROM samples_of($1::TEXT[], $2::TIMESTAMPTZ, $3::TIMESTAMPTZ) AS s
    GROUP BY s.channel_id
),
gaps AS (
    SELECT g.channel_id, g.from_time
    FROM chart_gaps($1::TEXT[], $2::TIMESTAMPTZ, $3::TIMESTAMPTZ) AS g
    WHERE NOT g.backfilled
)
SELECT c.name, unit_at(l.channel_id, l.time, patterns := $1::TEXT[]) AS unit,
       greatest(l.time, least($3::TIMESTAMPTZ, now(), c.ends)) AS time,
       l.value AS min, l.value AS avg, l.value AS max
FROM last_samples AS l
JOIN channels_like($1::TEXT[]) AS c ON c.channel_id = l.channel_id
ANTI JOIN gaps AS g ON g.channel_id = l.channel_id AND g.from_time >= l.time
WHERE l.status >= 0 AND abs(l.value) < 1e50;

-- name: select_kinds
-- Channels $1 (patterns) and their kinds.
SELECT c.name, c.kind FROM channels_like($1::TEXT[]) AS c;

-- name: select_gaps_of_curves
-- Gaps of channels $1 (patterns) that overlap $2 <= time < $3, as a chart shows them.
SELECT c.name, g.from_time, g.to_time, g.reason, g.backfilled
FROM chart_gaps($1::TEXT[], $2::TIMESTAMPTZ, $3::TIMESTAMPTZ) AS g
JOIN channels_like($1::TEXT[]) AS c ON c.channel_id = g.channel_id
ORDER BY c.name, g.from_time;

-- name: select_samples_between
-- Samples of channels $1 (patterns) with $2 <= time < $3, by day, channel and time.
SELECT s.channel_id, s.time, s.value, (s.status::BIGINT & 4294967295)::UINTEGER AS status, s.name, s.unit
FROM stored_samples AS s
WHERE s.channel_id IN channel_ids($1::TEXT[]) AND s.time >= $2::TIMESTAMPTZ AND s.time < $3::TIMESTAMPTZ
ORDER BY s.time::DATE, s.channel_id, s.time;

-- name: select_series_between
-- Curves of channels $1 (patterns) with $2 <= time < $3, in buckets of $4 µs.
SELECT s.channel_id, s.name, s.unit, bucket_of(s.time, $4::BIGINT) AS time,
       min(s.value) FILTER (s.status >= 0 AND NOT isnan(s.value)) AS min,
       avg(s.value) FILTER (s.status >= 0 AND NOT isnan(s.value)) AS avg,
       max(s.value) FILTER (s.status >= 0 AND NOT isnan(s.value)) AS max,
       count(*) AS n,
       count(*) FILTER (s.status >= 0 AND NOT isnan(s.value)) AS n_good
FROM stored_samples AS s
WHERE s.channel_id IN channel_ids($1::TEXT[]) AND s.time >= $2::TIMESTAMPTZ AND s.time < $3::TIMESTAMPTZ
GROUP BY ALL
ORDER BY s.channel_id, time;

-- name: select_gaps_between
-- Gaps of channels $1 (patterns) that overlap $2 <= time < $3, by channel and time.
SELECT g.channel_id, c.name, g.from_time, g.to_time, g.reason, g.detail, g.backfilled_at IS NOT NULL AS backfilled
FROM gaps_of($1::TEXT[]) AS g
JOIN channel AS c ON c.id = g.channel_id
WHERE g.from_time < $3::TIMESTAMPTZ AND g.to_time > $2::TIMESTAMPTZ
ORDER BY g.channel_id, g.from_time;

-- name: ask
-- DuckDB takes each of these tables for one row, and may keep the samples in memory to join a few rows with them. The
-- joins of the questions stay as they are written: what is on the right is kept in memory.
SET disabled_optimizers = 'join_order,build_side_probe_side';

-- name: lock
-- From here on nothing is read but these tables, and nothing is written but temporary files.
SET enable_external_access = false;
SET lock_configuration = true;
