-- Channels by the unit of the plant that they belong to: dashboards ask for those of one unit, and for the names of all
-- units, however many channels there are.
CREATE INDEX channel_unit ON plant.channel (regexp_replace(name, '/[^/]*$', ''), id) INCLUDE (name)
    WHERE retired_at IS NULL;
