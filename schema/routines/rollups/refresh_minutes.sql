-- refresh_minutes: recompute the minutes of the channels ids between two times of one day, in the caller's snapshot
--
-- Of plant.refresh_portion. Rollups of states and of counters follow those of the samples. everyone: all channels, if
-- what was marked dirty of any channel is to be taken, else NULL.
CREATE OR REPLACE FUNCTION plant.refresh_minutes(ids int[], everyone int[], "from" timestamptz, "to" timestamptz)
    RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog
SET plan_cache_mode = force_custom_plan
SET jit = off
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
    -- By hash: <@ compares all pairs.
    whole    CONSTANT boolean := everyone IS NOT NULL
                                 AND NOT EXISTS (SELECT unnest(everyone) EXCEPT SELECT unnest(ids));
    discrete int[];
    counters int[];
    of_day   CONSTANT timestamptz := plant.day_of("from");
    onward_ids     int[];
    onward_minutes timestamptz[];
BEGIN
    SELECT array_agg(t.id), array_agg(t.minute)
    INTO onward_ids, onward_minutes
    FROM plant.take_dirty_minutes(ids, everyone, "from", "to") AS t;
    -- Minutes whose raw data was dropped by retention cannot be recomputed and stay as they are; so do hours whose
    -- minutes were dropped.
    ids := plant.retained_channels(ids, 'raw', "from");
    IF ids = '{}' THEN
        RETURN;
    END IF;
    discrete := ARRAY(SELECT c.id FROM plant.channel AS c WHERE c.kind = 'discrete' AND c.id = ANY (ids));
    counters := ARRAY(SELECT c.id FROM plant.channel AS c WHERE c.kind = 'counter' AND c.id = ANY (ids));
    -- Convert packed days to rows.
    WITH unpacked AS (
        DELETE FROM plant.rollup_1m_packed AS p
        WHERE p.day = of_day AND p.channel_id = ANY (ids)
        RETURNING p
    )
    INSERT INTO plant.rollup_1m
    SELECT u.* FROM unpacked CROSS JOIN LATERAL plant.unpack_minutes(unpacked.p, '-infinity', 'infinity') AS u;

    PERFORM plant.replace_minutes(ids, "from", "to", whole, onward_ids, onward_minutes);

    IF discrete <> '{}' THEN
        IF EXISTS (SELECT FROM plant.rollup_states_1m AS r
                   WHERE r.channel_id = ANY (discrete) AND r.bucket >= "from" AND r.bucket < "to") THEN
            DELETE FROM plant.rollup_states_1m AS r
            WHERE r.channel_id = ANY (discrete) AND r.bucket >= "from" AND r.bucket < "to";
        END IF;
        INSERT INTO plant.rollup_states_1m SELECT s.* FROM plant.state_minutes_of(discrete, "from", "to") AS s;
    END IF;
    IF counters <> '{}' THEN
        IF EXISTS (SELECT FROM plant.rollup_increases_1m AS r
                   WHERE r.channel_id = ANY (counters) AND r.bucket >= "from" AND r.bucket < "to") THEN
            DELETE FROM plant.rollup_increases_1m AS r
            WHERE r.channel_id = ANY (counters) AND r.bucket >= "from" AND r.bucket < "to";
        END IF;
        INSERT INTO plant.rollup_increases_1m SELECT s.* FROM plant.increase_minutes_of(counters, "from", "to") AS s;
    END IF;
END
$$;
