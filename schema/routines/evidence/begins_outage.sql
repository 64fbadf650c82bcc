-- Whether a gap begins an outage, or goes on with that of the gap that began before it: where the two overlap or touch,
-- and it begins at most a minute after the other one begins, or before it ends. So channels that fall silent together
-- are one outage, and one that stays silent for days hides no others.
CREATE OR REPLACE FUNCTION plant.begins_outage(begins timestamptz, other_begins timestamptz, other_ends timestamptz)
RETURNS boolean
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN NOT coalesce(begins <= coalesce(other_ends, 'infinity')
                        AND (begins <= other_begins + INTERVAL '1 minute'
                             OR other_ends <= begins + INTERVAL '1 minute'),
                        false);
COMMENT ON FUNCTION plant.begins_outage(timestamptz, timestamptz, timestamptz) IS
    'Whether a gap begins an outage: the other one is the gap that began before it, of the same source or unit.';
