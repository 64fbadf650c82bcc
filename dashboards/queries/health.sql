-- 0 Appliance health. Rates and lags come from ingest_batch, which has one row per committed batch; at most the last
-- day of the time range is read. If the newest time of a batch is later than its arrival, a clock or a tag is wrong:
-- the lag is then measured from the arrival, and the time by which it is ahead is shown separately. Batches with a
-- negative sequence did not come from a spool: an import, or quarantined rows that were written at last, are not late
-- data. (Counts have such keys, too.)

-- name: installations
-- Those that share the database.
SELECT i.plant || CASE WHEN count(*) OVER (PARTITION BY i.plant) > 1 THEN ' ' || left(i.id::text, 8) ELSE '' END
           AS __text,
       i.id::text AS __value
FROM plant.installation AS i
UNION ALL
SELECT 'none yet', '' WHERE NOT EXISTS (SELECT FROM plant.installation)
ORDER BY 1;

-- name: rate_now
SELECT coalesce(sum(b.rows), 0) / 60.0 AS "Samples per second"
FROM plant.ingest_batch AS b
WHERE b.kind = 'samples' AND b.written_at > now() - INTERVAL '1 minute' AND b.written_at <= now()
  AND $__installationFilter(b.source_id);

-- name: lag_now
SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY extract(epoch FROM b.written_at - least(b.last_time, b.received_at)))
           AS "Lag",
       max(extract(epoch FROM b.last_time - b.received_at)) FILTER (WHERE b.last_time > b.received_at + INTERVAL '1 s')
           AS "In the future"
FROM plant.ingest_batch AS b
WHERE b.kind = 'samples' AND b.sequence > 0
  AND b.written_at > now() - INTERVAL '1 minute' AND b.written_at <= now()
  AND $__installationFilter(b.source_id);

-- name: wait_now
SELECT max(extract(epoch FROM b.written_at - b.received_at)) AS "Longest wait"
FROM plant.ingest_batch AS b
WHERE (b.sequence > 0 OR b.kind = 'counts') AND b.written_at > now() - INTERVAL '1 minute' AND b.written_at <= now()
  AND $__installationFilter(b.source_id);

-- name: sources_up
SELECT count(*) FILTER (WHERE s.state NOT IN ('connected', 'degraded')) AS "Disconnected"
FROM plant.source AS s
WHERE s.retired_at IS NULL AND $__installationFilter(s.id);

-- name: gaps_open
SELECT count(DISTINCT g.channel_id) AS "Channels", count(DISTINCT g.source_id) AS "Sources"
FROM plant.gap_channel AS g
JOIN plant.channel AS c ON c.id = g.channel_id
WHERE g.to_time IS NULL AND c.retired_at IS NULL
  AND $__installationFilter(g.source_id);

-- name: quarantined
SELECT count(*) AS "Quarantined"
FROM plant.quarantine AS q
WHERE q.retried_at IS NULL
  AND $__installationFilter(q.source_id);

-- name: rate
WITH
bounds AS (
    SELECT make_interval(secs => greatest($__interval_ms / 1000.0, 10)) AS step,
           greatest($__timeFrom()::timestamptz, $__timeTo()::timestamptz - INTERVAL '1 day') AS since,
           least($__timeTo()::timestamptz, now()) AS until
),
written AS (
    SELECT b.source_id, date_bin(x.step, b.written_at, 'epoch') AS bucket, sum(b.rows) AS rows
    FROM bounds AS x
    JOIN plant.ingest_batch AS b ON b.written_at >= x.since AND b.written_at < x.until
    WHERE b.kind = 'samples'
    GROUP BY b.source_id, date_bin(x.step, b.written_at, 'epoch')
),
begin AS (
    SELECT c.source_id, min(coalesce(c.configured_at, '-infinity')) AS time
    FROM plant.channel AS c
    GROUP BY c.source_id
)
-- Whole steps only: the current one is incomplete. A step without rows has a rate of 0, once there was a channel.
SELECT t.at AS time, s.name AS metric, coalesce(w.rows, 0) / extract(epoch FROM x.step) AS value
FROM bounds AS x
CROSS JOIN LATERAL generate_series(date_bin(x.step, x.since, 'epoch') + x.step, x.until - x.step, x.step) AS t (at)
CROSS JOIN plant.source AS s
LEFT JOIN written AS w ON w.source_id = s.id AND w.bucket = t.at
LEFT JOIN begin AS g ON g.source_id = s.id
WHERE s.retired_at IS NULL AND (w.rows IS NOT NULL OR g.time < t.at + x.step) AND $__installationFilter(s.id)
ORDER BY t.at, s.name;

-- name: lag
-- A line breaks where nothing was stored for two minutes.
WITH bounds AS (
    SELECT make_interval(secs => greatest($__interval_ms / 1000.0, 10)) AS step,
           greatest($__timeFrom()::timestamptz, $__timeTo()::timestamptz - INTERVAL '1 day') AS since
)
SELECT p.time, l.metric, p.value
FROM (
    SELECT date_bin(x.step, b.written_at, 'epoch') AS time, s.name AS metric, x.step,
           percentile_cont(0.5) WITHIN GROUP
               (ORDER BY extract(epoch FROM b.written_at - least(b.last_time, b.received_at))) AS value,
           lead(date_bin(x.step, b.written_at, 'epoch'))
               OVER (PARTITION BY s.name ORDER BY date_bin(x.step, b.written_at, 'epoch')) AS next
    FROM bounds AS x
    JOIN plant.ingest_batch AS b ON b.written_at >= x.since AND b.written_at < $__timeTo()::timestamptz
    JOIN plant.source AS s ON s.id = b.source_id
    WHERE b.kind = 'samples' AND b.sequence > 0
      AND $__installationFilter(s.id)
    GROUP BY date_bin(x.step, b.written_at, 'epoch'), s.name, x.step
) AS l
CROSS JOIN LATERAL (
    SELECT l.time, l.value
    UNION ALL
    SELECT l.time + l.step, NULL WHERE l.next > l.time + greatest(3 * l.step, INTERVAL '2 minutes')
) AS p
ORDER BY 1, 2;

-- name: wait
-- As in lag.
WITH bounds AS (
    SELECT make_interval(secs => greatest($__interval_ms / 1000.0, 10)) AS step,
           greatest($__timeFrom()::timestamptz, $__timeTo()::timestamptz - INTERVAL '1 day') AS since
)
SELECT p.time, p.median AS "median", p.maximum AS "maximum"
FROM (
    SELECT date_bin(x.step, b.written_at, 'epoch') AS time, x.step,
           percentile_cont(0.5) WITHIN GROUP (ORDER BY extract(epoch FROM b.written_at - b.received_at)) AS median,
           max(extract(epoch FROM b.written_at - b.received_at)) AS maximum,
           lead(date_bin(x.step, b.written_at, 'epoch')) OVER (ORDER BY date_bin(x.step, b.written_at, 'epoch')) AS next
    FROM bounds AS x
    JOIN plant.ingest_batch AS b ON b.written_at >= x.since AND b.written_at < $__timeTo()::timestamptz
    WHERE (b.sequence > 0 OR b.kind = 'counts') AND $__installationFilter(b.source_id)
    GROUP BY date_bin(x.step, b.written_at, 'epoch'), x.step
) AS w
CROSS JOIN LATERAL (
    SELECT w.time, w.median, w.maximum
    UNION ALL
    SELECT w.time + w.step, NULL, NULL WHERE w.next > w.time + greatest(3 * w.step, INTERVAL '2 minutes')
) AS p
ORDER BY 1;

-- name: overload_states
-- Overload of each installation's ingest at the start of the time range, and each change since; and, for each job that
-- gives way to ingest, whether it waited. A job that gave way waits from the end of that run on. There is no state
-- before the first channel was configured, or the job ran. The panel maps the numbers to names.
WITH
ingest AS (
    SELECT i.id::text AS id,
           CASE WHEN count(*) OVER () > 1 THEN 'ingest of ' || i.plant ELSE 'ingest' END
           || CASE WHEN count(*) OVER (PARTITION BY i.plant) > 1 THEN ' ' || left(i.id::text, 8) ELSE '' END AS metric,
           (SELECT min(coalesce(c.configured_at, '-infinity'))
            FROM plant.channel AS c
            JOIN plant.source AS s ON s.id = c.source_id
            WHERE s.installation_id = i.id) AS begin
    FROM plant.installation AS i
    WHERE i.id::text IN (${installation:sqlstring})
    UNION ALL
    SELECT '', 'ingest', (SELECT min(coalesce(c.configured_at, '-infinity')) FROM plant.channel AS c)
    WHERE NOT EXISTS (SELECT FROM plant.installation)
),
job AS (
    SELECT j.name, j.ordinal
    FROM unnest(ARRAY['rollups', 'compress', 'seal', 'archive', 'analyze']) WITH ORDINALITY AS j (name, ordinal)
),
changes AS (
    SELECT 0 AS ordinal, n.metric, e.time, CASE e.text WHEN 'overloaded' THEN 2 ELSE 0 END AS value
    FROM plant.event AS e
    JOIN ingest AS n ON n.id = coalesce(e.detail ->> 'installation', n.id)
    WHERE e.type = 'overload' AND $__timeFilter(e.time)
    UNION ALL
    SELECT 0, n.metric, n.begin, 0 FROM ingest AS n WHERE $__timeFilter(n.begin)
    UNION ALL
    SELECT j.ordinal, j.name, c.time, c.value
    FROM job AS j
    JOIN plant.job_run AS r ON r.job = j.name AND coalesce(r.installation_id::text IN (${installation:sqlstring}), true)
    CROSS JOIN LATERAL (
        SELECT r.started_at, CASE WHEN r.outcome = 'skipped' AND r.detail LIKE 'waits: %' THEN 1 ELSE 0 END
        UNION ALL
        SELECT r.ended_at, 1 WHERE r.detail LIKE 'gave way %'
    ) AS c (time, value)
    WHERE $__timeFilter(c.time)
),
-- The state at the start of the time range.
initial AS (
    SELECT 0 AS ordinal, n.metric,
           coalesce((SELECT CASE e.text WHEN 'overloaded' THEN 2 ELSE 0 END
                     FROM plant.event AS e
                     WHERE e.type = 'overload' AND e.time < $__timeFrom()::timestamptz
                       AND n.id = coalesce(e.detail ->> 'installation', n.id)
                     ORDER BY e.time DESC LIMIT 1),
                    CASE WHEN n.begin < $__timeFrom()::timestamptz THEN 0 END) AS value
    FROM ingest AS n
    UNION ALL
    SELECT j.ordinal, j.name,
           (SELECT CASE WHEN r.detail LIKE 'waits: %' OR r.detail LIKE 'gave way %' THEN 1 ELSE 0 END
            FROM plant.job_run AS r
            WHERE r.job = j.name AND r.started_at < $__timeFrom()::timestamptz
              AND coalesce(r.installation_id::text IN (${installation:sqlstring}), true)
            ORDER BY r.started_at DESC, r.id DESC LIMIT 1)
    FROM job AS j
)
SELECT s.time, s.metric, s.value
FROM (SELECT b.ordinal, b.metric, $__timeFrom()::timestamptz AS time, b.value FROM initial AS b
      UNION ALL
      SELECT c.ordinal, c.metric, c.time, c.value FROM changes AS c) AS s
ORDER BY s.ordinal, s.metric, s.time;

-- name: overloads
-- One event records the begin of an overload with its measurements, another one its end with the worst ones. For an
-- ongoing overload, poll interval and lag come from what was recorded since; job_run has the deferred jobs.
WITH
events AS (
    SELECT e.detail ->> 'installation' AS installation, e.time, e.text, e.detail,
           lead(e.time) OVER by_installation AS ended, lead(e.detail) OVER by_installation AS worst
    FROM plant.event AS e
    WHERE e.type = 'overload' AND e.time < $__timeTo()::timestamptz + INTERVAL '1 day'
      AND e.time >= $__timeFrom()::timestamptz - INTERVAL '30 days'
      AND coalesce(e.detail ->> 'installation' IN (${installation:sqlstring}), true)
    WINDOW by_installation AS (PARTITION BY e.detail ->> 'installation' ORDER BY e.time)
),
overload AS (
    SELECT s.installation, s.time AS began, s.ended, coalesce(s.worst, s.detail) AS figures,
           tstzrange(s.time, coalesce(s.ended, now())) AS during
    FROM events AS s
    WHERE s.text = 'overloaded' AND s.time < $__timeTo()::timestamptz
      AND coalesce(s.ended, now()) > $__timeFrom()::timestamptz
    ORDER BY s.time DESC
    LIMIT 100
),
-- From the check that deferred a job, or from the end of the run that gave way, to the next run.
waits AS (
    SELECT r.installation, r.job,
           tstzrange(least(CASE WHEN r.gave_way THEN r.ended_at ELSE r.started_at END, r.next), r.next) AS during
    FROM (
        SELECT r.installation_id::text AS installation, r.job, r.started_at, r.ended_at,
               r.detail LIKE 'gave way %' AS gave_way, r.outcome = 'skipped' AND r.detail LIKE 'waits: %' AS waits,
               lead(r.started_at) OVER (PARTITION BY r.installation_id, r.job ORDER BY r.started_at, r.id) AS next
        FROM plant.job_run AS r
        WHERE r.started_at >= $__timeFrom()::timestamptz - INTERVAL '1 hour' AND r.started_at < $__timeTo()::timestamptz
    ) AS r
    WHERE r.gave_way OR r.waits
)
SELECT o.began AS "Started", CASE WHEN o.ended IS NULL THEN 'ongoing' ELSE 'ended' END AS "State", i.plant AS "Plant",
       extract(epoch FROM coalesce(o.ended, now()) - o.began) AS "Duration", w.waited AS "Deferred jobs",
       greatest((o.figures ->> 'lag_seconds')::float8, l.lag) AS "Lag",
       nullif(greatest((o.figures ->> 'pace_seconds')::float8, p.pace), 0) AS "Poll interval",
       (o.figures ->> 'cpu_pressure')::float8 AS "CPU pressure",
       (o.figures ->> 'spool_bytes')::int8 AS "Spools"
FROM overload AS o
LEFT JOIN plant.installation AS i ON i.id::text = o.installation
CROSS JOIN LATERAL (
    SELECT max(extract(epoch FROM b.written_at - b.received_at)) AS lag
    FROM plant.ingest_batch AS b
    WHERE o.ended IS NULL AND b.written_at >= greatest(o.began, now() - INTERVAL '1 hour')
      AND b.source_id IN (SELECT s.id FROM plant.source AS s
                          WHERE coalesce(s.installation_id::text = o.installation, true))
) AS l
CROSS JOIN LATERAL (
    SELECT max((e.detail ->> 'pace_seconds')::float8) AS pace
    FROM plant.event AS e
    WHERE o.ended IS NULL AND e.type = 'poll_stretched' AND e.text = 'stretched'
      AND e.time >= greatest(o.began, now() - INTERVAL '1 hour')
      AND e.source_id IN (SELECT s.id FROM plant.source AS s
                          WHERE coalesce(s.installation_id::text = o.installation, true))
) AS p
CROSS JOIN LATERAL (
    SELECT string_agg(DISTINCT w.job, ', ' ORDER BY w.job) AS waited FROM waits AS w
    WHERE w.during && o.during AND w.installation IS NOT DISTINCT FROM o.installation
) AS w
ORDER BY o.began DESC;

-- name: source_states
-- The state of each source at the start of the time range, and each change since; the panel maps the numbers to names.
-- If the last change is older than the events, or than 30 days, the state has held since then.
WITH
states AS (
    SELECT s.name, $__timeFrom()::timestamptz AS time,
           coalesce(e.text, CASE WHEN s.state_since < $__timeFrom()::timestamptz THEN s.state END) AS state
    FROM plant.source AS s
    LEFT JOIN LATERAL (
        SELECT b.text
        FROM plant.event AS b
        WHERE b.type = 'source_state' AND b.source_id = s.id AND b.time < $__timeFrom()::timestamptz
          AND b.time >= $__timeFrom()::timestamptz - INTERVAL '30 days'
        ORDER BY b.time DESC LIMIT 1
    ) AS e ON true
    WHERE s.retired_at IS NULL AND $__installationFilter(s.id)
    UNION ALL
    SELECT s.name, e.time, e.text
    FROM plant.event AS e
    JOIN plant.source AS s ON s.id = e.source_id
    WHERE e.type = 'source_state' AND s.retired_at IS NULL AND $__timeFilter(e.time)
      AND $__installationFilter(s.id)
)
SELECT t.time, t.name AS metric,
       CASE t.state WHEN 'connected' THEN 3 WHEN 'degraded' THEN 2 WHEN 'stopped' THEN 0 WHEN 'disconnected' THEN -1
                    ELSE 1 END AS value
FROM states AS t
WHERE t.state IS NOT NULL
UNION ALL
-- A row without a value, because Grafana takes a timeline without rows for an error.
SELECT $__timeFrom()::timestamptz, 'no state yet', NULL
WHERE NOT EXISTS (SELECT FROM states AS t WHERE t.state IS NOT NULL)
ORDER BY time, metric;

-- name: gaps_begun
-- Outages: gaps of one source for one reason that begin together count once, whatever the number of channels
-- (begins_outage). Every step has a value, so that bars are as wide as a step.
WITH
bounds AS (
    SELECT make_interval(secs => greatest($__interval_ms * 8 / 1000.0, 60)) AS step
),
gaps AS (
    SELECT g.reason, g.from_time,
           plant.begins_outage(g.from_time, lag(g.from_time) OVER begun, lag(g.to_time) OVER begun) AS begins_outage
    FROM plant.gap AS g
    WHERE $__timeFilter(g.from_time) AND g.to_time IS DISTINCT FROM g.from_time
      AND $__installationFilter(g.source_id)
    WINDOW begun AS (PARTITION BY g.source_id, g.reason ORDER BY g.from_time, g.to_time)
),
outages AS (
    SELECT g.reason, date_bin(x.step, g.from_time, 'epoch') AS bin
    FROM bounds AS x
    CROSS JOIN gaps AS g
    WHERE g.begins_outage
)
SELECT t.bin AS time, r.reason AS metric, count(o.bin) AS value
FROM bounds AS x
CROSS JOIN LATERAL generate_series(date_bin(x.step, $__timeFrom()::timestamptz, 'epoch'),
                                   least(now(), $__timeTo()::timestamptz), x.step) AS t (bin)
CROSS JOIN (SELECT DISTINCT o.reason FROM outages AS o) AS r
LEFT JOIN outages AS o ON o.bin = t.bin AND o.reason = r.reason
GROUP BY t.bin, r.reason
ORDER BY t.bin, r.reason;

-- name: sources
-- The path of an address is in a line of its own, as Grafana does not break one; so is the plant of a source, where
-- several installations share the database.
SELECT concat_ws(E'\n', s.name, i.plant) AS "Source", s.state AS "State", coalesce(h.channels, 0) AS "Channels",
       CASE WHEN EXISTS (SELECT FROM plant.gap AS g
                         WHERE g.source_id = s.id AND g.channel_id IS NULL AND g.to_time IS NULL)
            THEN coalesce(h.channels, 0)
            ELSE (SELECT count(DISTINCT c.id)
                  FROM plant.gap AS g
                  JOIN plant.channel AS c ON c.id = g.channel_id AND c.source_id = g.source_id
                  WHERE g.source_id = s.id AND g.to_time IS NULL AND c.retired_at IS NULL) END AS "No data",
       plant.in_groups(s.reason) AS "Reason", regexp_replace(s.address, '(://[^/]+)/', E'\\1\n/') AS "Address",
       s.state_since AS "Since", b.newest AS "Latest sample", b.ahead AS "In the future"
FROM plant.source AS s
LEFT JOIN plant.installation AS i ON i.id = s.installation_id AND (SELECT count(*) > 1 FROM plant.installation)
LEFT JOIN (
    SELECT c.source_id, count(*) AS channels FROM plant.channel AS c WHERE c.retired_at IS NULL GROUP BY c.source_id
) AS h ON h.source_id = s.id
CROSS JOIN LATERAL (
    SELECT max(least(b.last_time, b.received_at)) AS newest,
           max(extract(epoch FROM b.last_time - b.received_at))
               FILTER (WHERE b.last_time > b.received_at + INTERVAL '1 s') AS ahead
    FROM plant.ingest_batch AS b
    WHERE b.source_id = s.id AND b.kind = 'samples' AND b.written_at > now() - INTERVAL '1 hour'
) AS b
WHERE s.retired_at IS NULL AND $__installationFilter(s.id)
ORDER BY s.state IN ('connected', 'degraded'), s.name;

-- name: gaps_latest
SELECT coalesce(c.name, s.name || ' (all channels)') AS "Channel", g.reason AS "Reason", g.from_time AS "From",
       extract(epoch FROM coalesce(g.to_time, now()) - g.from_time) AS "Duration",
       CASE WHEN g.to_time IS NULL THEN 'open' WHEN g.backfilled_at IS NOT NULL THEN 'backfilled'
            ELSE 'closed' END AS "State",
       plant.in_groups(CASE WHEN g.to_time IS NULL AND g.channel_id IS NULL
                            THEN coalesce(nullif(s.reason, ''), g.detail) ELSE g.detail END) AS "Detail",
       g.to_time AS "To", s.name AS "Source", i.plant AS "Plant"
FROM plant.gap AS g
JOIN plant.source AS s ON s.id = g.source_id
LEFT JOIN plant.installation AS i ON i.id = s.installation_id
LEFT JOIN plant.channel AS c ON c.id = g.channel_id
WHERE g.from_time < $__timeTo()::timestamptz AND coalesce(g.to_time, now()) > $__timeFrom()::timestamptz
  AND g.to_time IS DISTINCT FROM g.from_time AND $__installationFilter(s.id)
ORDER BY g.to_time IS NOT NULL, g.from_time DESC
LIMIT 200;

-- name: events_latest
-- Events without a source are of the whole database, or name their installation.
SELECT e.time AS "Time", e.type AS "Type", coalesce(c.name, s.name) AS "Where", plant.in_groups(e.text) AS "Text",
       plant.in_groups(plant.detail_text(e.detail)) AS "Detail"
FROM plant.event AS e
LEFT JOIN plant.channel AS c ON c.id = e.channel_id
LEFT JOIN plant.source AS s ON s.id = coalesce(e.source_id, c.source_id)
WHERE $__timeFilter(e.time) AND e.type <> 'text'
  AND coalesce(s.installation_id::text IN (${installation:sqlstring}), true)
  AND coalesce(e.detail ->> 'installation' IN (${installation:sqlstring}), true)
ORDER BY e.time DESC
LIMIT 200;

-- name: alarms_now
-- As on 1 Plant.
SELECT count(*) FILTER (WHERE a.active AND a.priority_rank <= 2) AS "Urgent",
       count(*) FILTER (WHERE a.active) AS "Active",
       count(*) FILTER (WHERE a.state LIKE '%unacknowledged%') AS "Unacknowledged"
FROM plant.alarm_active AS a
WHERE $__installationFilter(a.source_id);

-- name: jobs
-- The newest run of each job, and the number of failures in the last day. What every installation does for itself has a
-- row for each of them: the success of one does not hide the failure of another.
SELECT j.job AS "Job", i.plant AS "Plant", r.outcome AS "Outcome", plant.in_groups(r.detail) AS "Detail",
       r.started_at AS "Started",
       CASE WHEN r.outcome <> 'skipped'
            THEN extract(epoch FROM coalesce(r.ended_at, now()) - r.started_at) END AS "Duration",
       f.failed AS "Failed today", r.rows AS "Rows", r.bytes AS "Bytes"
FROM (
    SELECT DISTINCT r.job,
           CASE WHEN r.job NOT IN ('rollups', 'compress', 'retain', 'analyze', 'ahead', 'trim')
                THEN r.installation_id END AS own
    FROM plant.job_run AS r
) AS j
LEFT JOIN plant.installation AS i ON i.id = j.own
CROSS JOIN LATERAL (
    SELECT coalesce(n.outcome, 'runs') AS outcome, n.started_at, n.ended_at, n.rows, n.bytes, n.detail
    FROM plant.job_run AS n
    WHERE n.job = j.job AND coalesce(n.installation_id = j.own, true)
    ORDER BY n.started_at DESC, n.id DESC LIMIT 1
) AS r
CROSS JOIN LATERAL (
    SELECT count(*) AS failed
    FROM plant.job_run AS n
    WHERE n.job = j.job AND coalesce(n.installation_id = j.own, true) AND n.outcome = 'failed'
      AND n.started_at > now() - INTERVAL '1 day'
) AS f
WHERE coalesce(j.own::text IN (${installation:sqlstring}), true)
ORDER BY r.outcome = 'ok', j.job, i.plant;

-- name: counted
-- Number of events by type, from counts by minute, never from events. Every step has a value.
WITH
bounds AS (
    SELECT make_interval(secs => greatest(60, ceil($__interval_ms * 8 / 60000.0) * 60)) AS step
),
counts AS (
    SELECT date_bin(x.step, e.bucket, 'epoch') AS bin, e.type, sum(e.n) AS n
    FROM bounds AS x
    CROSS JOIN plant.event_count_1m AS e
    WHERE $__timeFilter(e.bucket) AND e.type <> 'text'
      AND e.channel_id NOT IN (SELECT c.id FROM plant.source AS o JOIN plant.channel AS c ON c.source_id = o.id
                               WHERE o.installation_id::text NOT IN (${installation:sqlstring}))
    GROUP BY date_bin(x.step, e.bucket, 'epoch'), e.type
)
SELECT t.bin AS time, k.type AS metric, coalesce(c.n, 0) AS value
FROM bounds AS x
CROSS JOIN LATERAL generate_series(date_bin(x.step, $__timeFrom()::timestamptz, 'epoch'),
                                   least(now(), $__timeTo()::timestamptz), x.step) AS t (bin)
CROSS JOIN (SELECT DISTINCT c.type FROM counts AS c) AS k
LEFT JOIN counts AS c ON c.bin = t.bin AND c.type = k.type
ORDER BY t.bin, k.type;
