-- The current state of alarms (the events of type alarm are their history), and their notifications.

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

-- Notification. The writer queues a notice in the transaction that adds the event. The notifier creates messages from
-- notices. Each message is delivered to each receiver at least once.

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

GRANT INSERT, UPDATE ON plant.alarm, plant.notification_delivery TO plant_ingest;
GRANT INSERT, DELETE ON plant.notification TO plant_ingest;
GRANT INSERT, UPDATE, DELETE ON plant.alarm_notice TO plant_ingest;
GRANT ALL ON plant.alarm, plant.notification, plant.notification_delivery, plant.alarm_notice TO plant_owner;
