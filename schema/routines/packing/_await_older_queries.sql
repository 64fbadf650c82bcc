-- Wait until every running query knows the chunks that a table has now; over: whether that took less time than at_most.
--
-- A query does not read a chunk that was created after the query was planned, but its snapshot may be newer. If rows
-- moved to that chunk in between, it would miss them in both forms. So the chunk is created first, and rows move once
-- all transactions are over that began before that and have a lock of the table. Nobody waits for this procedure.
--
-- A session may keep a plan that it made meanwhile for its next queries: of a table in a function that is inlined,
-- PostgreSQL knows that the plan depends on it only once it is made.
-- A change of the table makes all sessions plan anew.
CREATE OR REPLACE PROCEDURE plant._await_older_queries(relation regclass, at_most interval, INOUT over boolean)
LANGUAGE plpgsql
AS $$
DECLARE
    since timestamptz;
BEGIN
    COMMIT;
    since := clock_timestamp();
    LOOP
        over := NOT EXISTS (
            SELECT FROM pg_locks AS l
            JOIN pg_stat_activity AS a ON a.pid = l.pid
            WHERE l.locktype = 'relation' AND l.relation = _await_older_queries.relation AND l.pid <> pg_backend_pid()
              AND l.database = (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database())
              AND (a.xact_start <= since OR a.query = '<insufficient privilege>')
        );
        EXIT WHEN over OR clock_timestamp() > since + at_most;
        PERFORM pg_sleep(0.02);
        COMMIT; -- pg_stat_activity stays the same within a transaction
    END LOOP;
    EXECUTE format('CREATE STATISTICS plant.changed_%s ON channel_id, n FROM %s', relation::oid, relation);
    EXECUTE format('DROP STATISTICS plant.changed_%s', relation::oid);
    COMMIT;
END
$$;
