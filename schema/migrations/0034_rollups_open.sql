-- Minutes made by the writer. It has the samples of a minute in its hands as they come: what came in order it writes as rows
-- of rollup_1m when the minute is over, and nothing is made anew.
--
-- How they stay exact. Each transaction that adds samples leaves a row in rollup_dirty as before; where its writer holds the
-- minute open the row says since when, and refreshing leaves alone all minutes from there on. The writer closes a minute in
-- one transaction: its own rows of rollup_dirty go, those of rollup_1m come, and what it can't vouch for becomes dirty. Where
-- a writer does not come back, its rows are as others after open_for().
-- A minute depends on what is carried into it. The writer knows what it wrote last, but others change samples too (late
-- data, delete_samples, another writer), each with a row in rollup_dirty. So a channel's minute is written only where it
-- follows on its newest stored row. What is carried out of that row changes by refreshing alone, after which it does not
-- follow, or finds the new row and makes it dirty: closing and refreshing exclude each other.

ALTER TABLE plant.rollup_dirty ADD COLUMN open_since timestamptz;
COMMENT ON COLUMN plant.rollup_dirty.open_since IS 'A writer makes this minute; NULL: it is to be made from samples.';
CREATE INDEX rollup_dirty_open ON plant.rollup_dirty (from_time) WHERE open_since IS NOT NULL;

-- For how long a writer may hold a minute open.
CREATE FUNCTION plant.open_for() RETURNS interval
    LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN INTERVAL '3 minutes';

-- When the first minute begins that a writer holds open.
CREATE FUNCTION plant.first_open() RETURNS timestamptz
LANGUAGE sql VOLATILE -- by the clock
SET search_path = pg_catalog
AS $$
SELECT min(d.from_time) FROM plant.rollup_dirty AS d
WHERE d.open_since IS NOT NULL AND d.open_since > clock_timestamp() - plant.open_for()
$$;

CREATE TABLE plant.rollup_closed (
    one    boolean     PRIMARY KEY DEFAULT true CHECK (one),
    minute timestamptz NOT NULL
);
INSERT INTO plant.rollup_closed (minute) VALUES ('-infinity');
COMMENT ON TABLE plant.rollup_closed IS 'The minute that a writer closed last. Who closes minutes or makes them anew locks this row.';

-- Which of the channels ids have another newest minute than the writer thinks, which would close the minute now: their
-- last samples before it were at times (µs since 1970) with values, or had none (NULL: Bad, NaN).
CREATE FUNCTION plant.not_following(ids int[], times int8[], "values" float8[], minute timestamptz) RETURNS int[]
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog
SET plan_cache_mode = force_custom_plan
SET jit = off
SET enable_seqscan = off
SET enable_bitmapscan = off
SET max_parallel_workers_per_gather = 0
AS $$
BEGIN
    RETURN ARRAY(
        SELECT c.id
        FROM unnest(ids, times, "values") AS c (id, time, value)
        LEFT JOIN LATERAL (
            SELECT r.bucket, r.last_time, r.last, r.holds
            FROM plant.rollup_1m AS r
            WHERE r.channel_id = c.id AND r.bucket >= plant.later(minute, -plant.hold_limit())
            ORDER BY r.bucket DESC LIMIT 1
        ) AS r ON true
        WHERE NOT coalesce(r.bucket < minute
                           AND CASE WHEN c.value IS NULL THEN NOT r.holds
                                    ELSE r.holds AND r.last = c.value
                                         AND r.last_time = TIMESTAMPTZ 'epoch' + c.time * INTERVAL '1 microsecond' END,
                           false));
END
$$;

-- As plant.refresh_portion, before what writers hold open; NULL also where a writer closes a minute.
CREATE FUNCTION plant.refresh_closed(closed timestamptz) RETURNS boolean
LANGUAGE plpgsql
SET search_path = pg_catalog
AS $$
BEGIN
    -- Not with a snapshot from before a minute was closed: that is a serialization failure.
    PERFORM FROM plant.rollup_closed AS c FOR UPDATE NOWAIT;
    RETURN plant.refresh_portion(least(closed, plant.first_open()));
EXCEPTION WHEN serialization_failure OR lock_not_available THEN
    RETURN NULL;
END
$$;

-- Make whatever is dirty anew: each portion in a transaction of its own, in which nobody who writes samples waits. Two at
-- once do no harm, the second ends at once. A minute is made when it has been over for some seconds, an hour likewise.
CREATE OR REPLACE PROCEDURE plant.refresh_rollups()
LANGUAGE plpgsql
AS $$
DECLARE
    grace CONSTANT interval := INTERVAL '10 seconds'; -- a minute's last samples are on their way
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

GRANT SELECT ON plant.rollup_closed TO plant_reader, plant_ingest;
GRANT UPDATE ON plant.rollup_closed TO plant_ingest;
GRANT ALL ON plant.rollup_closed TO plant_owner;
GRANT DELETE ON plant.rollup_dirty TO plant_ingest;
GRANT UPDATE (open_since) ON plant.rollup_dirty TO plant_ingest;
GRANT INSERT ON plant.rollup_1m, plant.rollup_states_1m TO plant_ingest;
