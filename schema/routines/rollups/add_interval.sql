-- at + by, as an immutable function: by has hours or smaller units only, since days and months depend on the time zone.
CREATE OR REPLACE FUNCTION plant.add_interval(at timestamptz, by interval) RETURNS timestamptz
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN at + by;
