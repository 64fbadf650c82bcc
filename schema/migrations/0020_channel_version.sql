-- What a channel means, by time: plant.channel says it of now, plant.channel_version of each moment. Triggers keep it, so
-- that no way of changing a channel, source, class of retention or setting goes without a version and an event.

CREATE TABLE plant.channel_version (
    channel_id  int         NOT NULL,
    valid_from  timestamptz NOT NULL,
    valid_to    timestamptz NOT NULL DEFAULT 'infinity' CHECK (valid_to > valid_from),
    name        text        NOT NULL,
    source_id   int         NOT NULL,
    address     text        NOT NULL,
    kind        text        NOT NULL,
    unit        text        NOT NULL,
    range_lo    float8,
    range_hi    float8,
    deadband    float8      NOT NULL,
    description text        NOT NULL,
    attributes  jsonb       NOT NULL,
    retention   text        NOT NULL,
    recorded_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    always      boolean     NOT NULL GENERATED ALWAYS AS (NOT isfinite(valid_from) AND NOT isfinite(valid_to)) STORED,
    PRIMARY KEY (channel_id, valid_from)
);
CREATE INDEX channel_version_name ON plant.channel_version (name);
COMMENT ON TABLE plant.channel_version IS 'What a channel was called and meant, valid_from <= time of a sample < valid_to. The first version is valid from -infinity, the newest to infinity.';
GRANT SELECT ON plant.channel_version TO plant_ingest, plant_reader;
GRANT ALL ON plant.channel_version TO plant_owner;

INSERT INTO plant.channel_version (channel_id, valid_from, name, source_id, address, kind, unit, range_lo, range_hi,
                                   deadband, description, attributes, retention)
SELECT c.id, '-infinity', c.name, c.source_id, c.address, c.kind, c.unit, c.range_lo, c.range_hi, c.deadband,
       c.description, c.attributes, c.retention
FROM plant.channel AS c;

-- An event of the given type: what differs between old and new, as words and as JSON.
CREATE FUNCTION plant._record_change(type text, at timestamptz, source int, channel int, name text, old jsonb, new jsonb)
RETURNS void
LANGUAGE sql
SET search_path = pg_catalog
AS $$
WITH differing AS (
    SELECT coalesce(o.key, n.key) AS key, o.value AS old, n.value AS new
    FROM jsonb_each(coalesce(_record_change.old, '{}')) AS o
    FULL JOIN jsonb_each(coalesce(_record_change.new, '{}')) AS n ON n.key = o.key
    WHERE o.value IS DISTINCT FROM n.value
),
said AS (
    SELECT string_agg(concat(d.key, ' ', coalesce(nullif(d.old #>> '{}', ''), 'none'), ' → ',
                             coalesce(nullif(d.new #>> '{}', ''), 'none')), ', ' ORDER BY d.key) AS words,
           jsonb_build_object('name', _record_change.name, 'by', session_user,
                              'old', coalesce(jsonb_object_agg(d.key, d.old) FILTER (WHERE d.old IS NOT NULL), '{}'),
                              'new', coalesce(jsonb_object_agg(d.key, d.new) FILTER (WHERE d.new IS NOT NULL), '{}'))
               AS detail
    FROM differing AS d
    HAVING count(*) > 0
)
INSERT INTO plant.event (time, id, type, source_id, channel_id, text, detail)
SELECT at, hashtextextended(concat_ws(' ', at::text, type, source::text, channel::text, s.detail::text), 20)
           & 9223372036854775807,
       type, source, channel, s.words, s.detail
FROM said AS s
$$;
REVOKE EXECUTE ON FUNCTION plant._record_change FROM PUBLIC;

-- What a channel is, with the name of its source, as one flat object.
CREATE FUNCTION plant._facts(c plant.channel) RETURNS jsonb
LANGUAGE sql STABLE
SET search_path = pg_catalog
AS $$
SELECT c.attributes || (to_jsonb(c) - ARRAY['id', 'source_id', 'attributes'])
       || jsonb_build_object('source', (SELECT s.name FROM plant.source AS s WHERE s.id = c.source_id))
$$;

CREATE FUNCTION plant._version_channels() RETURNS trigger
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog
AS $$
DECLARE
    moment timestamptz := clock_timestamp();
BEGIN
    IF TG_OP = 'INSERT' THEN
        INSERT INTO plant.channel_version (channel_id, valid_from, name, source_id, address, kind, unit, range_lo,
                                           range_hi, deadband, description, attributes, retention)
        SELECT f.id, '-infinity', f.name, f.source_id, f.address, f.kind, f.unit, f.range_lo, f.range_hi, f.deadband,
               f.description, f.attributes, f.retention
        FROM fresh AS f;
        RETURN NULL;
    END IF;
    PERFORM plant._record_change('channel_changed', moment, f.source_id, f.id, f.name,
                                 plant._facts(former::plant.channel), plant._facts(f::plant.channel))
    FROM fresh AS f
    JOIN former ON former.id = f.id;
    -- A clock that was set back must not put the versions out of order.
    WITH changed AS (
        SELECT f.*, greatest(moment, v.valid_from + INTERVAL '1 microsecond') AS since
        FROM fresh AS f
        JOIN plant.channel_version AS v ON v.channel_id = f.id AND v.valid_to = 'infinity'
        WHERE (v.name, v.source_id, v.address, v.kind, v.unit, v.range_lo, v.range_hi, v.deadband, v.description,
               v.attributes, v.retention)
              IS DISTINCT FROM
              (f.name, f.source_id, f.address, f.kind, f.unit, f.range_lo, f.range_hi, f.deadband, f.description,
               f.attributes, f.retention)
    ),
    ended AS (
        UPDATE plant.channel_version AS v SET valid_to = c.since
        FROM changed AS c
        WHERE v.channel_id = c.id AND v.valid_to = 'infinity'
    )
    INSERT INTO plant.channel_version (channel_id, valid_from, name, source_id, address, kind, unit, range_lo, range_hi,
                                       deadband, description, attributes, retention)
    SELECT c.id, c.since, c.name, c.source_id, c.address, c.kind, c.unit, c.range_lo, c.range_hi, c.deadband,
           c.description, c.attributes, c.retention
    FROM changed AS c;
    RETURN NULL;
END
$$;
CREATE TRIGGER version_new AFTER INSERT ON plant.channel REFERENCING NEW TABLE AS fresh
    FOR EACH STATEMENT EXECUTE FUNCTION plant._version_channels();
CREATE TRIGGER version_changed AFTER UPDATE ON plant.channel REFERENCING OLD TABLE AS former NEW TABLE AS fresh
    FOR EACH STATEMENT EXECUTE FUNCTION plant._version_channels();

-- Sources, classes of retention and settings have no versions: events say what they were.
CREATE FUNCTION plant._record_row_change() RETURNS trigger
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog
AS $$
DECLARE
    former jsonb := to_jsonb(OLD) - ARRAY['id', 'state', 'state_since', 'reason'];
    fresh  jsonb := CASE TG_OP WHEN 'UPDATE' THEN to_jsonb(NEW) - ARRAY['id', 'state', 'state_since', 'reason'] END;
BEGIN
    PERFORM plant._record_change(TG_ARGV[0], clock_timestamp(), (to_jsonb(OLD) ->> 'id')::int, NULL,
                                 coalesce(former ->> 'name', former ->> 'key'), former, fresh);
    RETURN NULL;
END
$$;
CREATE TRIGGER record_change AFTER UPDATE OF name, kind, address, attributes, retired_at, installation_id ON plant.source
    FOR EACH ROW EXECUTE FUNCTION plant._record_row_change('source_changed');
CREATE TRIGGER record_change AFTER UPDATE OR DELETE ON plant.retention_class
    FOR EACH ROW EXECUTE FUNCTION plant._record_row_change('retention_changed');
CREATE TRIGGER record_change AFTER UPDATE OR DELETE ON plant.setting
    FOR EACH ROW WHEN (OLD.installation_id IS NOT NULL)
    EXECUTE FUNCTION plant._record_row_change('setting_changed');

CREATE FUNCTION plant.unit_at(channel int, at timestamptz) RETURNS text
LANGUAGE sql STABLE PARALLEL SAFE
SET search_path = pg_catalog
AS $$
SELECT v.unit
FROM plant.channel_version AS v
WHERE v.channel_id = channel AND v.valid_from <= at
ORDER BY v.valid_from DESC
LIMIT 1
$$;
COMMENT ON FUNCTION plant.unit_at IS 'The unit that a channel''s values had at a time.';

-- Of a channel that never changed, a sample's time needs no look (always): two comparisons a sample are 100 ns.
CREATE OR REPLACE VIEW plant.samples_named AS
SELECT s.time, v.name, s.value, v.unit, plant.quality(s.status) AS quality, s.status, s.channel_id
FROM plant.samples AS s
JOIN plant.channel_version AS v
    ON v.channel_id = s.channel_id AND (v.always OR (s.time >= v.valid_from AND s.time < v.valid_to));
COMMENT ON VIEW plant.samples_named IS 'Samples with the name and unit that their channel had then, for people. By today''s name: WHERE channel_id = (SELECT c.id FROM channel AS c WHERE c.name = …).';
