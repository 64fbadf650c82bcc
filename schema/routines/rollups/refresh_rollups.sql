-- Recompute everything that is dirty, one portion per transaction, without blocking writers. A second concurrent call
-- returns at once. Minutes and hours are computed some seconds after their end.
CREATE OR REPLACE PROCEDURE plant.refresh_rollups()
LANGUAGE plpgsql
AS $$
DECLARE
    grace CONSTANT interval := INTERVAL '10 seconds'; -- the last samples of a minute are still arriving
    done     boolean;
BEGIN
    LOOP
        COMMIT;
        SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; -- before anything takes a snapshot
        done := plant.refresh_closed(plant.minute_of(clock_timestamp() - grace));
        EXIT WHEN done IS NOT TRUE;
    END LOOP;
    COMMIT;
END
$$;
COMMENT ON PROCEDURE plant.refresh_rollups IS
    'Recompute the dirty rollups of all closed minutes and hours, newest first, in short transactions. CALL it '
    'outside a transaction.';
