-- Heartbeat of a member of a redundant pair. It also looks after the other member: one that was not seen for `patience`
-- is away, which is a gap of all sources from when it was last seen. The gap ends where it began if the member comes
-- back with its state folder (it spooled what it received, and records itself what it missed). With a new one it ends
-- by source, as soon as the source is among those that the member is receiving from; gateways keep what was not taken,
-- so that theirs ends at once. Gaps that are open in the former folder, which the new one does not know, end when it is
-- first seen. Returns whether the other member is away.
CREATE OR REPLACE FUNCTION plant.member_seen(
    installation uuid, by_member int, state_folder uuid, waiting bigint DEFAULT 0, receiving int[] DEFAULT '{}',
    patience interval DEFAULT '10 seconds'
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
    IF before.folder <> state_folder THEN
        PERFORM plant.record_member_gaps(
            by_member, e.sources, e.channels, e.begins, e.ends, e.reasons, e.details, e.backfills, e.revisions)
        FROM (
            SELECT array_agg(g.source_id) AS sources, array_agg(g.channel_id) AS channels,
                array_agg(g.from_time) AS begins, array_agg(greatest(g.from_time, at)) AS ends,
                array_agg(g.reason) AS reasons, array_agg(g.detail) AS details, array_agg(g.backfilled) AS backfills,
                array_agg(g.revision + 1) AS revisions -- whatever clock the former one had
            FROM plant.member_gap AS g
            JOIN plant.source AS s ON s.id = g.source_id AND s.installation_id = installation
            WHERE g.member = by_member AND g.reason <> 'away' AND g.to_time IS NULL
            HAVING count(*) > 0
        ) AS e;
        PERFORM plant.member_away(installation, by_member, before.seen_at, NULL);
    ELSIF before.away THEN
        PERFORM plant.member_away(installation, by_member, before.seen_at, before.seen_at);
    END IF;
    PERFORM plant.record_member_gaps(
        by_member, e.sources, array_fill(NULL::int, e.n), e.begins, array_fill(at, e.n), array_fill('away'::text, e.n),
        array_fill(''::text, e.n), array_fill(false, e.n), array_fill((extract(epoch FROM at) * 1000000)::int8, e.n))
    FROM (
        SELECT array_agg(g.source_id) AS sources, array_agg(g.from_time) AS begins, ARRAY[count(*)::int] AS n
        FROM plant.member_gap AS g
        JOIN plant.source AS s ON s.id = g.source_id AND s.installation_id = installation
        WHERE g.member = by_member AND g.reason = 'away' AND g.to_time IS NULL
          AND (s.id = ANY (receiving) OR s.kind = 'push')
        HAVING count(*) > 0
    ) AS e;
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
COMMENT ON FUNCTION plant.member_seen IS
    'Heartbeat of a member of a redundant pair; notices whether the other one is away.';
REVOKE EXECUTE ON FUNCTION plant.member_seen FROM PUBLIC;
GRANT EXECUTE ON FUNCTION plant.member_seen TO plant_ingest, plant_owner;
