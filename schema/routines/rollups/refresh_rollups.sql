-- Recompute everything that is dirty, one portion per transaction, without blocking writers. A second concurrent call
-- returns at once. Minutes and hours are computed some seconds after their end.
CREATE OR REPLACE PROCEDURE plant.refresh_rollups()
LANGUAGE plpgsql
AS $$
DECLARE
    grace CONSTANT interval := INTERVAL '10 seconds'; -- the last samples of a minute are still arriving
    lateness interval;
    done     boolean;
BEGIN
    LOOP
        COMMIT;
        SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; -- before anything takes a snapshot
        done := plant.refresh_closed(plant.minute_of(clock_timestamp() - grace));
        EXIT WHEN done IS NOT TRUE;
    END LOOP;
    COMMIT;
    IF NOT done THEN
        lateness := INTERVAL '1 second' * coalesce((SELECT s.value::float8 FROM plant.setting AS s WHERE s.key = 'lateness'),
                                                   86400);
        CALL plant.pack_rollups_before(clock_timestamp() - lateness, 1);
    END IF;
END
$$;
COMMENT ON PROCEDURE plant.refresh_rollups IS 'Recompute the dirty rollups of all closed minutes and hours, newest first, in short transactions. CALL it outside a transaction.';
