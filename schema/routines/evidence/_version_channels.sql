-- Trigger: every change of a channel adds an event and a version. A version that changes how the channel is read is
-- valid from the time at which its collector began to use it. Only the collector knows this time: a version added by a
-- registration has none until the writer reads it from the spool (plant.version_read).
CREATE OR REPLACE FUNCTION plant._version_channels() RETURNS trigger
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog
AS $$
DECLARE
    moment timestamptz := clock_timestamp();
    registered boolean := coalesce(current_setting('plant.registration', true), '') = 'on';
BEGIN
    IF TG_OP = 'INSERT' THEN
        INSERT INTO plant.channel_version (channel_id, version, valid_from, name, source_id, address, kind, unit,
                                           range_lo, range_hi, deadband, description, attributes, retention)
        SELECT f.id, 0, '-infinity', f.name, f.source_id, f.address, f.kind, f.unit, f.range_lo, f.range_hi,
               f.deadband, f.description, f.attributes, f.retention
        FROM fresh AS f;
        RETURN NULL;
    END IF;
    -- Planned anew each time: a plan is made for the number of rows that the transition tables had when the session
    -- first ran the statement. With a plan for no rows, 20,000 channels took minutes.
    EXECUTE $statement$
    INSERT INTO plant.event
    SELECT e.*
    FROM fresh AS f
    JOIN former ON former.id = f.id
    CROSS JOIN LATERAL plant._change_event(
        'channel_changed', $1, f.source_id, f.id, f.name,
        plant._channel_definition(former::plant.channel), plant._channel_definition(f::plant.channel)) AS e
    $statement$ USING moment;
    EXECUTE $statement$
    WITH newest AS (
        SELECT DISTINCT ON (v.channel_id) v.*
        FROM plant.channel_version AS v
        JOIN fresh AS f ON f.id = v.channel_id
        ORDER BY v.channel_id, v.version DESC
    ),
    changed AS (
        -- Collectors need not know of a new name alone. But if the newest version still waits for its time, so does
        -- this one.
        SELECT f.*, n.version, n.valid_from IS NULL OR $2 AND d.differs AS waits,
               -- Keeps the versions in order if the clock was set back.
               greatest($1, n.valid_from + INTERVAL '1 microsecond') AS since
        FROM fresh AS f
        JOIN newest AS n ON n.channel_id = f.id
        CROSS JOIN LATERAL (
            SELECT (n.source_id, n.address, n.kind, n.unit, n.range_lo, n.range_hi, n.deadband, n.description,
                    n.attributes, n.retention)
                   IS DISTINCT FROM
                   (f.source_id, f.address, f.kind, f.unit, f.range_lo, f.range_hi, f.deadband, f.description,
                    f.attributes, f.retention) AS differs
        ) AS d
        WHERE d.differs OR n.name <> f.name
    ),
    ended AS (
        UPDATE plant.channel_version AS v SET valid_to = c.since
        FROM changed AS c
        WHERE v.channel_id = c.id AND v.version = c.version AND NOT c.waits
    )
    INSERT INTO plant.channel_version (channel_id, version, collected, valid_from, name, source_id, address, kind, unit,
                                       range_lo, range_hi, deadband, description, attributes, retention)
    SELECT c.id, c.version + 1, c.waits, CASE WHEN NOT c.waits THEN c.since END, c.name, c.source_id, c.address, c.kind,
           c.unit, c.range_lo, c.range_hi, c.deadband, c.description, c.attributes, c.retention
    FROM changed AS c
    $statement$ USING moment, registered;
    RETURN NULL;
END
$$;
CREATE OR REPLACE TRIGGER version_new AFTER INSERT ON plant.channel REFERENCING NEW TABLE AS fresh
    FOR EACH STATEMENT EXECUTE FUNCTION plant._version_channels();
CREATE OR REPLACE TRIGGER version_changed AFTER UPDATE ON plant.channel
    REFERENCING OLD TABLE AS former NEW TABLE AS fresh
    FOR EACH STATEMENT EXECUTE FUNCTION plant._version_channels();
