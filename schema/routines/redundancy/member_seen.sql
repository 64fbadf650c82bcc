-- Heartbeat of a member of a redundant pair. It also looks after the other member: one that was not seen for `patience` is
-- away, which is a gap of all sources from when it was last seen. The gap ends where it began if the member comes back with
-- its state folder (it spooled what it received, and records itself what it missed), and now if it has a new one. Returns
-- whether the other member is away.
CREATE OR REPLACE FUNCTION plant.member_seen(
    installation uuid, by_member int, state_folder uuid, waiting bigint DEFAULT 0, patience interval DEFAULT '10 seconds'
) RETURNS boolean
LANGUAGE plpgsql
SET search_path = pg_catalog
AS $$
DECLARE
    before plant.member;
    at     CONSTANT timestamptz := clock_timestamp();
    away_from timestamptz;
BEGIN
    SELECT * INTO before FROM plant.member AS m
    WHERE m.installation_id = installation AND m.member = by_member FOR UPDATE;
    INSERT INTO plant.member AS m (installation_id, member, folder, seen_at, backlog_rows)
    VALUES (installation, by_member, state_folder, at, waiting)
    ON CONFLICT (installation_id, member) DO UPDATE
    SET seen_at = excluded.seen_at, folder = excluded.folder, away = false, backlog_rows = excluded.backlog_rows;
    IF before.away OR before.folder <> state_folder THEN
        PERFORM plant.member_away(installation, by_member, before.seen_at,
                                  CASE WHEN before.folder = state_folder THEN before.seen_at ELSE at END);
    END IF;
    UPDATE plant.member AS m SET away = true
    WHERE m.installation_id = installation AND m.member <> by_member AND NOT m.away AND m.seen_at < at - patience
    RETURNING m.seen_at INTO away_from;
    IF away_from IS NOT NULL THEN
        PERFORM plant.member_away(installation, 3 - by_member, away_from, NULL);
    END IF;
    RETURN NOT EXISTS (SELECT FROM plant.member AS m
                       WHERE m.installation_id = installation AND m.member <> by_member AND NOT m.away);
END
$$;
COMMENT ON FUNCTION plant.member_seen IS 'Heartbeat of a member of a redundant pair; notices whether the other one is away.';
REVOKE EXECUTE ON FUNCTION plant.member_seen FROM PUBLIC;
GRANT EXECUTE ON FUNCTION plant.member_seen TO plant_ingest, plant_owner;
