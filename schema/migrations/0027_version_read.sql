-- A version of what is read of a channel holds from the moment at which its collector began to read by it, which only the
-- collector knows. A registration's version waits without a time until the writer has that from the spool.

ALTER TABLE plant.channel_version
    ADD COLUMN version int,
    ADD COLUMN collected boolean NOT NULL DEFAULT false;
UPDATE plant.channel_version AS v
SET version = n.version
FROM (SELECT o.channel_id, o.valid_from, row_number() OVER (PARTITION BY o.channel_id ORDER BY o.valid_from) - 1 AS version
      FROM plant.channel_version AS o) AS n
WHERE (n.channel_id, n.valid_from) = (v.channel_id, v.valid_from);
ALTER TABLE plant.channel_version DROP CONSTRAINT channel_version_pkey;
ALTER TABLE plant.channel_version ADD PRIMARY KEY (channel_id, version);
CREATE OR REPLACE VIEW plant.samples_named AS
SELECT s.time, v.name, s.value, v.unit, plant.quality(s.status) AS quality, s.status, s.channel_id
FROM plant.samples AS s
JOIN plant.channel_version AS v ON v.channel_id = s.channel_id AND s.time >= v.valid_from AND s.time < v.valid_to;
ALTER TABLE plant.channel_version DROP COLUMN always;
ALTER TABLE plant.channel_version ALTER COLUMN valid_from DROP NOT NULL;
ALTER TABLE plant.channel_version ADD COLUMN always boolean NOT NULL
    GENERATED ALWAYS AS (coalesce(NOT isfinite(valid_from), false) AND NOT isfinite(valid_to)) STORED;
CREATE UNIQUE INDEX channel_version_valid_from ON plant.channel_version (channel_id, valid_from);
COMMENT ON TABLE plant.channel_version IS 'What a channel was called and meant, valid_from <= time of a sample < valid_to. The first version is valid from -infinity, the newest to infinity; one without valid_from is not read yet, or never was.';
COMMENT ON COLUMN plant.channel_version.collected IS 'Its collector says from when it is valid; else that is the moment of the change.';

-- Of a channel that never changed, a sample's time needs no look: CASE costs half of what the comparisons do.
CREATE OR REPLACE VIEW plant.samples_named AS
SELECT s.time, v.name, s.value, v.unit, plant.quality(s.status) AS quality, s.status, s.channel_id
FROM plant.samples AS s
JOIN plant.channel_version AS v
    ON v.channel_id = s.channel_id
    AND CASE WHEN v.always THEN true ELSE s.time >= v.valid_from AND s.time < v.valid_to END;

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
    PERFORM plant._record_change('channel_changed', moment, f.source_id, f.id, f.name,
                                 plant._facts(former::plant.channel), plant._facts(f::plant.channel))
    FROM fresh AS f
    JOIN former ON former.id = f.id;
    WITH newest AS (
        SELECT DISTINCT ON (v.channel_id) v.*
        FROM plant.channel_version AS v
        JOIN fresh AS f ON f.id = v.channel_id
        ORDER BY v.channel_id, v.version DESC
    ),
    changed AS (
        -- Of another name alone no collector has to know; but what waits is waited for in order.
        SELECT f.*, n.version, n.valid_from IS NULL
               OR registered AND (n.source_id, n.address, n.kind, n.unit, n.range_lo, n.range_hi, n.deadband,
                                  n.description, n.attributes, n.retention)
                                 IS DISTINCT FROM
                                 (f.source_id, f.address, f.kind, f.unit, f.range_lo, f.range_hi, f.deadband,
                                  f.description, f.attributes, f.retention) AS waits,
               -- A clock that was set back must not put the versions out of order.
               greatest(moment, n.valid_from + INTERVAL '1 microsecond') AS since
        FROM fresh AS f
        JOIN newest AS n ON n.channel_id = f.id
        WHERE (n.name, n.source_id, n.address, n.kind, n.unit, n.range_lo, n.range_hi, n.deadband, n.description,
               n.attributes, n.retention)
              IS DISTINCT FROM
              (f.name, f.source_id, f.address, f.kind, f.unit, f.range_lo, f.range_hi, f.deadband, f.description,
               f.attributes, f.retention)
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
    FROM changed AS c;
    RETURN NULL;
END
$$;

-- The version of a channel is read since a time; what is known already stays, whatever comes again. Versions that were
-- skipped, since a later one was there before a collector read by them, stay without a time.
CREATE FUNCTION plant.version_read(channel int, version int, since timestamptz) RETURNS void
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog
AS $$
DECLARE
    following timestamptz;
    begins    timestamptz;
BEGIN
    SELECT greatest(since, v.valid_from + INTERVAL '1 microsecond') INTO begins
    FROM plant.channel_version AS v
    WHERE v.channel_id = channel AND v.version < version_read.version AND v.valid_from IS NOT NULL
    ORDER BY v.version DESC
    LIMIT 1;
    SELECT min(v.valid_from) INTO following
    FROM plant.channel_version AS v
    WHERE v.channel_id = channel AND v.version > version_read.version;
    UPDATE plant.channel_version AS v SET valid_from = begins, valid_to = coalesce(following, 'infinity')
    WHERE v.channel_id = channel AND v.version = version_read.version AND v.valid_from IS NULL
      AND begins < coalesce(following, 'infinity');
    IF FOUND THEN
        UPDATE plant.channel_version AS v SET valid_to = begins
        WHERE v.channel_id = channel AND v.valid_from < begins AND v.valid_to > begins;
    END IF;
END
$$;
COMMENT ON FUNCTION plant.version_read IS 'What the writer calls where a collector says since when it reads a version.';
REVOKE EXECUTE ON FUNCTION plant.version_read FROM PUBLIC;
GRANT EXECUTE ON FUNCTION plant.version_read TO plant_ingest;
