-- Alarms as they stand now (the events of type alarm are their history), and who was told of them.

CREATE TABLE plant.alarm (
    channel_id      int         NOT NULL,
    limit_name      text        NOT NULL CHECK (limit_name IN ('lolo', 'lo', 'hi', 'hihi', 'rate', 'stale', 'bad')),
    state           text        NOT NULL CHECK (state IN ('normal', 'unacknowledged_active', 'acknowledged_active',
                                                          'return_to_normal_unacknowledged', 'latched_unacknowledged',
                                                          'shelved', 'suppressed_by_design', 'out_of_service')),
    active          boolean     NOT NULL,
    since           timestamptz NOT NULL,
    value           float8,
    threshold       float8      NOT NULL,
    priority        text        NOT NULL CHECK (priority IN ('critical', 'high', 'medium', 'low')),
    acknowledged_by text,
    acknowledged_at timestamptz,
    shelved_until   timestamptz,
    who             text,
    why             text,
    changed_at      timestamptz NOT NULL,
    revision        bigint      NOT NULL,
    PRIMARY KEY (channel_id, limit_name)
);
COMMENT ON TABLE plant.alarm IS 'Each alarm that ever was, as it stands now (ISA-18.2). Its history is plant.event, type alarm.';
COMMENT ON COLUMN plant.alarm.limit_name IS 'lolo, lo, hi, hihi: of the value; rate: of change; stale: silence; bad: quality.';
COMMENT ON COLUMN plant.alarm.active IS 'Whether the condition is beyond the limit now, whatever was done about the alarm.';
COMMENT ON COLUMN plant.alarm.since IS 'Since when it has been in this state.';
COMMENT ON COLUMN plant.alarm.value IS 'When active last changed; NULL: none that is a number.';
COMMENT ON COLUMN plant.alarm.threshold IS 'The limit: in the channel''s unit; rate: units a second; stale: seconds; bad: 0.';
COMMENT ON COLUMN plant.alarm.revision IS 'Grows with each change: of two records of one alarm the higher one is right.';
CREATE INDEX alarm_not_normal ON plant.alarm (state, since) WHERE state <> 'normal';

CREATE FUNCTION plant.priority_rank(priority text) RETURNS int
    LANGUAGE sql IMMUTABLE PARALLEL SAFE STRICT
    RETURN array_position(ARRAY['critical', 'high', 'medium', 'low'], priority);
COMMENT ON FUNCTION plant.priority_rank(text) IS '1: critical, to 4: low.';

CREATE FUNCTION plant.unit_of(channel text) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE STRICT
    RETURN CASE WHEN position('/' IN channel) > 0 THEN regexp_replace(channel, '/[^/]*$', '') ELSE '' END;
COMMENT ON FUNCTION plant.unit_of(text) IS 'The plant unit that a channel belongs to: its name without the last part.';

-- What an operator has to look at: beyond a limit or not acknowledged, the most urgent first.
CREATE VIEW plant.alarm_active AS
SELECT c.name AS channel, a.limit_name, a.state, a.active, a.since, a.value, a.threshold, c.unit, a.priority,
       plant.unit_of(c.name) AS plant_unit, s.name AS source, a.acknowledged_by, a.acknowledged_at,
       plant.priority_rank(a.priority) AS priority_rank, a.channel_id
FROM plant.alarm AS a
JOIN plant.channel AS c ON c.id = a.channel_id
JOIN plant.source AS s ON s.id = c.source_id
WHERE a.state IN ('unacknowledged_active', 'acknowledged_active', 'return_to_normal_unacknowledged',
                  'latched_unacknowledged')
  AND c.retired_at IS NULL
ORDER BY plant.priority_rank(a.priority), a.since DESC;
COMMENT ON VIEW plant.alarm_active IS 'Alarms to look at: active, or not acknowledged; the most urgent first. unit is the value''s, plant_unit the channel''s place.';

-- What nobody is told of now, and why.
CREATE VIEW plant.alarm_inhibited AS
SELECT c.name AS channel, a.limit_name, a.state, a.active, a.since, a.shelved_until, a.who, a.why, a.value, a.threshold,
       c.unit, a.priority, a.channel_id
FROM plant.alarm AS a
JOIN plant.channel AS c ON c.id = a.channel_id
WHERE a.state IN ('shelved', 'suppressed_by_design', 'out_of_service')
  AND c.retired_at IS NULL
ORDER BY a.since DESC;
COMMENT ON VIEW plant.alarm_inhibited IS 'Alarms that are shelved, suppressed by design or out of service, by whom and why.';

-- The limits as the tag lists have them.
CREATE VIEW plant.alarm_limit AS
SELECT c.id AS channel_id, c.name AS channel, l.limit_name, coalesce((l.said #>> '{}')::float8, 0) AS threshold,
       coalesce((c.attributes ->> 'alarm_deadband')::float8, 0) AS deadband, c.unit,
       coalesce(c.attributes ->> 'alarm_priority', 'medium') AS priority
FROM plant.channel AS c
CROSS JOIN LATERAL (
    SELECT k.limit_name, CASE WHEN k.limit_name = 'bad' THEN '0'::jsonb ELSE c.attributes -> ('alarm_' || k.limit_name) END
    FROM unnest(ARRAY['lolo', 'lo', 'hi', 'hihi', 'rate', 'stale', 'bad']) AS k (limit_name)
    WHERE c.attributes ? ('alarm_' || k.limit_name)
) AS l (limit_name, said)
WHERE c.retired_at IS NULL
  AND l.said IS DISTINCT FROM 'null'::jsonb;
COMMENT ON VIEW plant.alarm_limit IS 'Each alarm limit of the tag lists: threshold in the channel''s unit (rate: units a second; stale: seconds; bad: 0).';

-- Notification. The writer queues what people may have to be told, in the transaction that adds the event; the notifier
-- makes messages of it, and each message is delivered to each receiver, at least once.

CREATE TABLE plant.notification (
    id         uuid        PRIMARY KEY DEFAULT gen_random_uuid(),
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    kind       text        NOT NULL CHECK (kind IN ('alarm', 'return', 'flood')),
    subject    text        NOT NULL,
    body       jsonb       NOT NULL
);
COMMENT ON TABLE plant.notification IS 'A message about alarms, as it was made; id is sent with it, so that a receiver can drop what comes twice.';
CREATE INDEX notification_created ON plant.notification (created_at);

CREATE TABLE plant.notification_delivery (
    notification_id uuid        NOT NULL REFERENCES plant.notification (id) ON DELETE CASCADE,
    target          text        NOT NULL CHECK (target IN ('webhook', 'mail')),
    attempts        int         NOT NULL DEFAULT 0,
    next_attempt_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    delivered_at    timestamptz,
    given_up_at     timestamptz,
    error           text,
    PRIMARY KEY (notification_id, target)
);
COMMENT ON TABLE plant.notification_delivery IS 'Whether a message reached a receiver: delivered_at, or error of the last attempt and when the next one is.';
CREATE INDEX notification_delivery_waiting ON plant.notification_delivery (target, next_attempt_at)
    WHERE delivered_at IS NULL AND given_up_at IS NULL;

CREATE TABLE plant.alarm_notice (
    event_time      timestamptz NOT NULL,
    event_id        bigint      NOT NULL,
    queued_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    kind            text        NOT NULL CHECK (kind IN ('alarm', 'return')),
    channel_id      int         NOT NULL,
    limit_name      text        NOT NULL,
    priority        text        NOT NULL,
    value           float8,
    threshold       float8,
    late            boolean     NOT NULL DEFAULT false,
    outcome         text,
    notification_id uuid        REFERENCES plant.notification (id) ON DELETE SET NULL,
    PRIMARY KEY (event_time, event_id)
);
COMMENT ON TABLE plant.alarm_notice IS 'What people may have to be told: one row an alarm event that begins or ends an alarm. Kept for a week.';
COMMENT ON COLUMN plant.alarm_notice.outcome IS 'sent (see notification_id), or why not; NULL: the notifier has not looked at it, or a flood holds it back.';
CREATE INDEX alarm_notice_waiting ON plant.alarm_notice (queued_at) WHERE outcome IS NULL;
CREATE INDEX alarm_notice_queued ON plant.alarm_notice (queued_at);

GRANT SELECT ON plant.alarm, plant.alarm_active, plant.alarm_inhibited, plant.alarm_limit, plant.notification,
    plant.notification_delivery, plant.alarm_notice TO plant_reader, plant_ingest;
GRANT INSERT, UPDATE ON plant.alarm, plant.notification_delivery TO plant_ingest;
GRANT INSERT ON plant.notification TO plant_ingest;
GRANT INSERT, UPDATE, DELETE ON plant.alarm_notice TO plant_ingest;
GRANT DELETE ON plant.notification TO plant_ingest;
GRANT ALL ON plant.alarm, plant.notification, plant.notification_delivery, plant.alarm_notice TO plant_owner;
