-- What is missing, and what was refused: gaps in full, the quarantine, and the view that adds them up.

ALTER TABLE plant.gap ADD COLUMN detail text NOT NULL DEFAULT '';
ALTER TABLE plant.gap ADD COLUMN revision bigint NOT NULL DEFAULT 0;
ALTER TABLE plant.gap ADD COLUMN opened_at timestamptz NOT NULL DEFAULT clock_timestamp();
COMMENT ON COLUMN plant.gap.reason IS 'stopped, killed, disconnected, subscription_lost, not_available, overflow, undecodable, refused, poll_failed, poll_missed, spool_full, spool_corrupt, stale.';
COMMENT ON COLUMN plant.gap.revision IS 'When its collector said this (µs since 1970): what is said later replaces what was said before.';
COMMENT ON COLUMN plant.gap.to_time IS 'Time of the first sample behind the gap; NULL: still open; equal to from_time: nothing was missing after all.';
CREATE INDEX gap_time ON plant.gap (from_time, to_time);
CREATE INDEX gap_open ON plant.gap (source_id) WHERE to_time IS NULL;
GRANT UPDATE (to_time, backfilled_at, reason, detail, revision) ON plant.gap TO plant_ingest;

ALTER TABLE plant.ingest_batch DROP CONSTRAINT ingest_batch_kind_check;
ALTER TABLE plant.ingest_batch ADD CONSTRAINT ingest_batch_kind_check CHECK (kind IN ('samples', 'events', 'gaps'));

CREATE TABLE plant.quarantine (
    id             bigint      PRIMARY KEY,
    quarantined_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    reason         text        NOT NULL,
    source_id      int         NOT NULL,
    received_at    timestamptz NOT NULL,
    channel_id     int,
    time_us        bigint,
    value          float8,
    status         int,
    detail         jsonb       NOT NULL DEFAULT '{}',
    retried_at     timestamptz
);
CREATE INDEX quarantine_at ON plant.quarantine (quarantined_at);
COMMENT ON TABLE plant.quarantine IS 'What came and was kept out of samples, events and gaps, and why. id is a hash of the row: a replay is a no-op.';
COMMENT ON COLUMN plant.quarantine.time_us IS 'The sample''s own time, µs since 1970: it may be one that no timestamptz can hold.';
COMMENT ON COLUMN plant.quarantine.detail IS 'Events and gaps as a whole; of samples the database''s own words where it refused them.';
GRANT SELECT ON plant.quarantine TO plant_reader;
GRANT SELECT, INSERT ON plant.quarantine TO plant_ingest;
GRANT ALL ON plant.quarantine TO plant_owner;

-- How often a channel should have a sample. Polled channels have an interval; those that report changes have none.
CREATE VIEW plant.channel_interval AS
SELECT c.id AS channel_id, c.source_id, (c.attributes ->> 'expected_interval')::float8 AS seconds
FROM plant.channel AS c;

-- Each gap of each channel: those of the whole source are spread over its channels.
CREATE VIEW plant.gap_channel AS
SELECT g.id AS gap_id, c.id AS channel_id, g.source_id, g.from_time, g.to_time, g.reason, g.detail, g.backfilled_at
FROM plant.gap AS g
JOIN plant.channel AS c ON c.source_id = g.source_id AND (g.channel_id IS NULL OR g.channel_id = c.id)
WHERE g.to_time IS DISTINCT FROM g.from_time;
COMMENT ON VIEW plant.gap_channel IS 'Gaps by channel; a gap of a whole source is one row for each of its channels.';

CREATE VIEW plant.coverage AS
WITH
-- Days of each channel on which something was stored, and how much of it is no news of an outage.
got AS (
    SELECT s.channel_id, date_trunc('day', s.time, 'UTC') AS day, count(*) AS got,
           count(*) FILTER (WHERE plant.quality(s.status) <> 'bad') AS got_good,
           min(s.time) AS first_time
    FROM plant.samples AS s
    GROUP BY s.channel_id, date_trunc('day', s.time, 'UTC')
),
-- Gaps cut at midnight. Overlapping ones of a channel are joined, so that no second is counted twice.
pieces AS (
    SELECT g.channel_id, d.day, g.backfilled_at IS NOT NULL AS backfilled,
           range_agg(tstzrange(greatest(g.from_time, d.day), least(coalesce(g.to_time, now()), d.day + INTERVAL '1 day')))
               AS missing
    FROM plant.gap_channel AS g
    CROSS JOIN LATERAL generate_series(date_trunc('day', g.from_time, 'UTC'),
                                       greatest(g.from_time, coalesce(g.to_time, now())), INTERVAL '1 day') AS d (day)
    WHERE greatest(g.from_time, d.day) < least(coalesce(g.to_time, now()), d.day + INTERVAL '1 day')
    GROUP BY g.channel_id, d.day, g.backfilled_at IS NOT NULL
),
missing AS (
    SELECT p.channel_id, p.day, p.backfilled,
           sum(extract(epoch FROM upper(r.piece) - lower(r.piece)))::float8 AS seconds
    FROM pieces AS p
    CROSS JOIN LATERAL unnest(p.missing) AS r (piece)
    GROUP BY p.channel_id, p.day, p.backfilled
),
days AS (
    SELECT g.channel_id, g.day FROM got AS g
    UNION
    SELECT m.channel_id, m.day FROM missing AS m
)
SELECT d.day, d.channel_id, c.name,
       -- From the channel's first sample of all on, to now on the current day.
       CASE WHEN i.seconds IS NOT NULL
            THEN round(extract(epoch FROM least(d.day + INTERVAL '1 day', now())
                                          - greatest(d.day, coalesce(began.first_time, d.day)))::numeric
                       / i.seconds::numeric)::bigint END AS expected,
       coalesce(g.got, 0) AS got,
       coalesce(g.got_good, 0) AS got_good,
       CASE WHEN i.seconds IS NOT NULL THEN round(coalesce(o.seconds, 0) / i.seconds)::bigint END AS missing,
       coalesce(o.seconds, 0) AS missing_seconds,
       coalesce(b.seconds, 0) AS backfilled_seconds
FROM days AS d
JOIN plant.channel AS c ON c.id = d.channel_id
LEFT JOIN plant.channel_interval AS i ON i.channel_id = d.channel_id
LEFT JOIN got AS g ON g.channel_id = d.channel_id AND g.day = d.day
LEFT JOIN missing AS o ON o.channel_id = d.channel_id AND o.day = d.day AND NOT o.backfilled
LEFT JOIN missing AS b ON b.channel_id = d.channel_id AND b.day = d.day AND b.backfilled
LEFT JOIN LATERAL (
    SELECT min(g2.first_time) AS first_time FROM got AS g2 WHERE g2.channel_id = d.channel_id
) AS began ON true;
COMMENT ON VIEW plant.coverage IS 'By channel and day (UTC): samples expected (NULL where the channel reports changes only), got, missing, and seconds missing and backfilled. Filter by day.';
GRANT SELECT ON plant.channel_interval, plant.gap_channel, plant.coverage TO plant_reader, plant_ingest, plant_owner;
