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
COMMENT ON TABLE plant.condition IS 'Current state of each condition of an OPC UA server (OPC 10000-9) that has changed state at least once. The history is in plant.event, type alarm.';
COMMENT ON COLUMN plant.condition.condition_key IS 'The node id of the condition, and of the branch if it is an earlier state that waits for acknowledgement.';
COMMENT ON COLUMN plant.condition.source_name IS 'The event''s SourceName.';
COMMENT ON COLUMN plant.condition.channel_id IS 'The channel whose variable is the source of the condition. NULL: none.';
COMMENT ON COLUMN plant.condition.priority IS 'From the severity: critical from 801, high from 601, medium from 401, otherwise low.';
COMMENT ON COLUMN plant.condition.revision IS 'Increases with each change, as in plant.alarm.';
CREATE INDEX condition_not_normal ON plant.condition (state, since) WHERE state <> 'normal';
GRANT INSERT, UPDATE ON plant.condition TO plant_ingest;
GRANT ALL ON plant.condition TO plant_owner;

ALTER TABLE plant.alarm_notice ALTER COLUMN channel_id DROP NOT NULL;
ALTER TABLE plant.alarm_notice ADD COLUMN source_id int;
ALTER TABLE plant.alarm_notice ADD COLUMN condition_key text;
COMMENT ON COLUMN plant.alarm_notice.condition_key IS 'With source_id: the alarm is a condition, and limit_name its name. NULL: a limit of the channel.';
