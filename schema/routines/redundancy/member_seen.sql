-- Heartbeat of a member of a redundant pair. It also looks after the other member: one that was not seen for `patience` is
-- away, which is a gap of all sources from when it was last seen. The gap ends where it began if the member comes back with
-- its state folder (it spooled what it received, and records itself what it missed), and now if it has a new one.
CREATE OR REPLACE FUNCTION plant.member_seen(
    installation uuid, by_member int, state_folder uuid, patience interval DEFAULT '10 seconds'
) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog
AS $$
DECLARE
    before plant.member;
    sources CONSTANT int[] := ARRAY(SELECT s.id FROM plant.source AS s
                                    WHERE s.installation_id = installation AND s.retired_at IS NULL ORDER BY s.id);
    n       CONSTANT int := cardinality(sources);
    at      CONSTANT timestamptz := clock_timestamp();
    away_from timestamptz[];
BEGIN
    SELECT * INTO before FROM plant.member AS m
    WHERE m.installation_id = installation AND m.member = by_member FOR UPDATE;
    INSERT INTO plant.member AS m (installation_id, member, folder, seen_at) VALUES (installation, by_member, state_folder, at)
    ON CONFLICT (installation_id, member) DO UPDATE
    SET seen_at = excluded.seen_at, folder = excluded.folder, away = false;
    IF before.away OR before.folder <> state_folder THEN
        PERFORM plant.record_member_gaps(
            by_member, sources, array_fill(NULL::int, ARRAY[n]), array_fill(before.seen_at, ARRAY[n]),
            array_fill(CASE WHEN before.folder = state_folder THEN before.seen_at ELSE at END, ARRAY[n]),
            array_fill('away'::text, ARRAY[n]), array_fill(''::text, ARRAY[n]), array_fill(false, ARRAY[n]),
            array_fill((extract(epoch FROM at) * 1000000)::int8, ARRAY[n]));
    END IF;
    UPDATE plant.member AS m SET away = true
    WHERE m.installation_id = installation AND m.member <> by_member AND NOT m.away AND m.seen_at < at - patience
    RETURNING array_fill(m.seen_at, ARRAY[n]) INTO away_from;
    IF away_from IS NOT NULL THEN
        PERFORM plant.record_member_gaps(
            3 - by_member, sources, array_fill(NULL::int, ARRAY[n]), away_from,
            array_fill(NULL::timestamptz, ARRAY[n]), array_fill('away'::text, ARRAY[n]), array_fill(''::text, ARRAY[n]),
            array_fill(false, ARRAY[n]), array_fill((extract(epoch FROM at) * 1000000)::int8, ARRAY[n]));
    END IF;
END
$$;
COMMENT ON FUNCTION plant.member_seen IS 'Heartbeat of a member of a redundant pair; notices whether the other one is away.';
REVOKE EXECUTE ON FUNCTION plant.member_seen FROM PUBLIC;
GRANT EXECUTE ON FUNCTION plant.member_seen TO plant_ingest, plant_owner;
