-- Dashboards choose installations: the index has the source of each channel, too.
DROP INDEX plant.channel_unit;
CREATE INDEX channel_unit ON plant.channel (regexp_replace(name, '/[^/]*$', ''), id) INCLUDE (name, source_id)
    WHERE retired_at IS NULL;
