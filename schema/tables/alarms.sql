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
COMMENT ON TABLE plant.alarm IS
    'Current state of each alarm (ISA-18.2) that has changed state at least once. '
    'The history is in plant.event, type alarm.';
COMMENT ON COLUMN plant.alarm.limit_name IS
    'lolo, lo, hi, hihi: a limit of the value. rate: a limit of its rate of change. stale: no samples arrive. bad: '
    'Bad quality.';
COMMENT ON COLUMN plant.alarm.active IS
    'Whether the alarm condition is true now, even if the alarm is acknowledged, shelved or suppressed.';
COMMENT ON COLUMN plant.alarm.since IS
    'When the alarm entered its current state; acknowledged_active: since when it is active.';
COMMENT ON COLUMN plant.alarm.value IS 'Value at the last change of active. NULL: not a number.';
COMMENT ON COLUMN plant.alarm.threshold IS
    'The limit, in the unit of the channel. rate: in units per second. stale: in seconds. bad: 0.';
COMMENT ON COLUMN plant.alarm.revision IS
    'Increases with each change. Of two records of an alarm, the one with the higher revision is newer.';
CREATE INDEX alarm_not_normal ON plant.alarm (state, since) WHERE state <> 'normal';

CREATE TABLE plant.condition (
    source_id       int         NOT NULL,
    condition_key   text        NOT NULL,
    source_name     text        NOT NULL,
    condition_name  text        NOT NULL,
    channel_id      int,
    state           text        NOT NULL CHECK (state IN ('normal', 'unacknowledged_active', 'acknowledged_active',
                                                          'return_to_normal_unacknowledged', 'shelved',
                                                          'suppressed_by_design', 'out_of_service')),
    active          boolean     NOT NULL,
    since           timestamptz NOT NULL,
    priority        text        NOT NULL CHECK (priority IN ('critical', 'high', 'medium', 'low')),
    severity        int         NOT NULL,
    message         text        NOT NULL,
    acknowledged_by text,
    acknowledged_at timestamptz,
    why             text,
    changed_at      timestamptz NOT NULL,
    revision        bigint      NOT NULL,
    PRIMARY KEY (source_id, condition_key)
);
COMMENT ON TABLE plant.condition IS
    'Current state of each condition of an OPC UA server (OPC 10000-9) that has changed state at least once. The '
    'history is in plant.event, type alarm.';
COMMENT ON COLUMN plant.condition.condition_key IS
    'The node id of the condition, and of the branch if it is an earlier state that waits for acknowledgement.';
COMMENT ON COLUMN plant.condition.source_name IS 'The event''s SourceName.';
COMMENT ON COLUMN plant.condition.channel_id IS
    'The channel whose variable is the source of the condition. NULL: none.';
COMMENT ON COLUMN plant.condition.priority IS
    'From the severity: critical from 801, high from 601, medium from 401, otherwise low.';
COMMENT ON COLUMN plant.condition.revision IS 'Increases with each change, as in plant.alarm.';
CREATE INDEX condition_not_normal ON plant.condition (state, since) WHERE state <> 'normal';

-- Notification. The writer queues a notice in the transaction that adds the event. The notifier creates messages from
-- notices. Each message is delivered to each receiver at least once.

CREATE TABLE plant.notification (
    id         uuid        PRIMARY KEY DEFAULT gen_random_uuid(),
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    kind       text        NOT NULL CHECK (kind IN ('alarm', 'return', 'flood')),
    subject    text        NOT NULL,
    body       jsonb       NOT NULL,
    installation_id uuid REFERENCES plant.installation (id) ON UPDATE CASCADE
);
COMMENT ON TABLE plant.notification IS
    'Messages about alarms. Each message contains its id, so that a receiver can drop duplicates.';
COMMENT ON COLUMN plant.notification.installation_id IS 'The installation that sends the message. NULL: any.';
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
COMMENT ON TABLE plant.notification_delivery IS
    'Delivery of each message to each receiver: when it was delivered or given up; until then, the error of the last '
    'attempt and the time of the next one.';
CREATE INDEX notification_delivery_waiting ON plant.notification_delivery (target, next_attempt_at)
    WHERE delivered_at IS NULL AND given_up_at IS NULL;

CREATE TABLE plant.alarm_notice (
    event_time      timestamptz NOT NULL,
    event_id        bigint      NOT NULL,
    queued_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    kind            text        NOT NULL CHECK (kind IN ('alarm', 'return')),
    channel_id      int,
    limit_name      text        NOT NULL,
    priority        text        NOT NULL,
    value           float8,
    threshold       float8,
    late            boolean     NOT NULL DEFAULT false,
    outcome         text,
    notification_id uuid        REFERENCES plant.notification (id) ON DELETE SET NULL,
    source_id       int,
    condition_key   text,
    PRIMARY KEY (event_time, event_id)
);
COMMENT ON TABLE plant.alarm_notice IS
    'Alarm events from which messages are composed: one row for each event that begins or ends an alarm. Rows are '
    'kept for a week.';
COMMENT ON COLUMN plant.alarm_notice.outcome IS
    'sent (see notification_id), or why nothing was sent. NULL: not processed yet, or held back during an alarm flood.';
COMMENT ON COLUMN plant.alarm_notice.condition_key IS
    'With source_id: the alarm is a condition, and limit_name its name. NULL: a limit of the channel.';
CREATE INDEX alarm_notice_waiting ON plant.alarm_notice (queued_at) WHERE outcome IS NULL;
CREATE INDEX alarm_notice_queued ON plant.alarm_notice (queued_at);

GRANT INSERT, UPDATE ON plant.alarm, plant.condition, plant.notification_delivery TO plant_ingest;
GRANT INSERT, DELETE ON plant.notification TO plant_ingest;
GRANT INSERT, UPDATE, DELETE ON plant.alarm_notice TO plant_ingest;
GRANT ALL ON plant.alarm, plant.condition, plant.notification, plant.notification_delivery,
             plant.alarm_notice TO plant_owner;
