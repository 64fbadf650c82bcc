-- Refreshing: what is dirty is made anew, in small portions. See 0008_rollups.sql.

-- When the minute, hour or day (UTC) began that a time is in.
CREATE FUNCTION plant.minute_of(at timestamptz) RETURNS timestamptz
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN date_bin(INTERVAL '1 minute', at, TIMESTAMPTZ '2000-01-01 00:00:00+00');
CREATE FUNCTION plant.hour_of(at timestamptz) RETURNS timestamptz
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN date_bin(INTERVAL '1 hour', at, TIMESTAMPTZ '2000-01-01 00:00:00+00');
CREATE FUNCTION plant.day_of(at timestamptz) RETURNS timestamptz
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN date_bin(INTERVAL '24 hours', at, TIMESTAMPTZ '2000-01-01 00:00:00+00');

-- Where a gap begins, what is carried on from there becomes unknown; where it turns out to be none, known.
CREATE FUNCTION plant.gap_is_dirty() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER -- whoever writes gaps
SET search_path = pg_catalog
AS $$
BEGIN
    INSERT INTO plant.rollup_dirty (from_time, to_time, channels, onward)
    SELECT plant.minute_of(g.from_time), plant.minute_of(g.from_time) + INTERVAL '1 minute',
           CASE WHEN g.channel_id IS NULL THEN ARRAY(SELECT c.id FROM plant.channel AS c WHERE c.source_id = g.source_id)
                ELSE ARRAY[g.channel_id] END,
           true
    FROM (SELECT coalesce(NEW.from_time, OLD.from_time) AS from_time, coalesce(NEW.channel_id, OLD.channel_id) AS channel_id,
                 coalesce(NEW.source_id, OLD.source_id) AS source_id) AS g
    WHERE coalesce(NEW.to_time IS DISTINCT FROM NEW.from_time AND NEW.backfilled_at IS NULL, false)
          <> coalesce(OLD.to_time IS DISTINCT FROM OLD.from_time AND OLD.backfilled_at IS NULL, false);
    RETURN NULL;
END
$$;
CREATE TRIGGER gap_is_dirty AFTER INSERT OR UPDATE OR DELETE ON plant.gap
    FOR EACH ROW EXECUTE FUNCTION plant.gap_is_dirty();

-- Make the minutes of some channels from one time to another anew, within a day, in the caller's snapshot. Dirty rows go,
-- or what they have within these bounds; those of any channel where everyone is given.
CREATE FUNCTION plant.refresh_minutes(ids int[], everyone int[], "from" timestamptz, "to" timestamptz) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog
SET plan_cache_mode = force_custom_plan
SET jit = off
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
    others   CONSTANT int[] := ARRAY(SELECT e.id FROM unnest(everyone) AS e (id) EXCEPT SELECT i.id FROM unnest(ids) AS i (id));
    whole    CONSTANT boolean := everyone IS NOT NULL AND others = '{}';
    discrete int[] := ARRAY(SELECT c.id FROM plant.channel AS c WHERE c.kind = 'discrete' AND c.id = ANY (ids));
    of_day   CONSTANT timestamptz := plant.day_of("from");
    forced   int[];
BEGIN
    WITH taken AS (
        DELETE FROM plant.rollup_dirty AS d
        WHERE d.from_time < "to" AND d.to_time > "from" AND NOT d.hours
          AND (d.channels && ids OR d.channels IS NULL AND everyone IS NOT NULL)
        RETURNING d.from_time, d.to_time, d.channels, d.onward
    ),
    rest AS (
        INSERT INTO plant.rollup_dirty (from_time, to_time, channels, onward)
        SELECT t.from_time, "from", t.channels, t.onward FROM taken AS t WHERE t.from_time < "from"
        UNION ALL
        SELECT "to", t.to_time, t.channels, t.onward FROM taken AS t WHERE t.to_time > "to"
        UNION ALL
        SELECT greatest(t.from_time, "from"), least(t.to_time, "to"), r.others, t.onward
        FROM taken AS t
        CROSS JOIN LATERAL (
            SELECT CASE WHEN t.channels IS NULL THEN others
                        WHEN t.channels <@ ids THEN '{}'
                        ELSE ARRAY(SELECT c.id FROM unnest(t.channels) AS c (id)
                                   EXCEPT SELECT i.id FROM unnest(ids) AS i (id)) END AS others
        ) AS r
        WHERE r.others <> '{}'
    ),
    onward AS (
        SELECT c.id, plant.hour_of(greatest(t.from_time, "from")) AS hour
        FROM taken AS t
        CROSS JOIN unnest(t.channels) AS c (id)
        WHERE t.onward AND c.id = ANY (ids)
    ),
    hours AS (
        INSERT INTO plant.rollup_dirty (from_time, to_time, channels, hours)
        SELECT o.hour, o.hour + INTERVAL '1 hour', array_agg(DISTINCT o.id), true FROM onward AS o GROUP BY o.hour
    )
    SELECT array_agg(DISTINCT o.id) INTO forced FROM onward AS o;
    -- Where retention took raw data, minutes can't be made anew: they stay as they are. So do hours without their minutes.
    ids := plant.not_dropped(ids, 'raw', "from");
    discrete := ARRAY(SELECT i.id FROM unnest(ids) AS i (id) INTERSECT SELECT c.id FROM unnest(discrete) AS c (id));
    IF ids = '{}' THEN
        RETURN;
    END IF;
    -- Packed days become rows again.
    WITH unpacked AS (
        DELETE FROM plant.rollup_1m_packed AS p
        WHERE p.day = of_day AND p.channel_id = ANY (ids)
        RETURNING p
    )
    INSERT INTO plant.rollup_1m
    SELECT u.* FROM unpacked CROSS JOIN LATERAL plant.unpack_minutes(unpacked.p, '-infinity', 'infinity') AS u;

    WITH fresh AS MATERIALIZED (
        SELECT m AS line, m.channel_id, m.bucket FROM plant.minutes_of(ids, "from", "to") AS m
    ),
    old AS MATERIALIZED (
        SELECT r AS line, r.channel_id, r.bucket
        FROM unnest(ids) AS c (id)
        CROSS JOIN LATERAL (SELECT o.* FROM plant.rollup_1m AS o
                            WHERE o.channel_id = c.id AND o.bucket >= "from" AND o.bucket < "to" OFFSET 0) AS r
    ),
    gone AS (
        SELECT o.channel_id, o.bucket
        FROM old AS o
        WHERE NOT EXISTS (SELECT FROM fresh AS f WHERE f.channel_id = o.channel_id AND f.bucket = o.bucket)
    ),
    new AS (
        SELECT f.line, f.channel_id, f.bucket
        FROM fresh AS f
        LEFT JOIN old AS o ON o.channel_id = f.channel_id AND o.bucket = f.bucket
        WHERE o.line IS NULL OR o.line *<> f.line
    ),
    removed AS (
        DELETE FROM plant.rollup_1m AS r USING gone AS g
        WHERE r.channel_id = g.channel_id AND r.bucket = g.bucket AND r.bucket >= "from" AND r.bucket < "to"
    ),
    put AS (
        INSERT INTO plant.rollup_1m SELECT (n.line).* FROM new AS n
        ON CONFLICT (channel_id, bucket) DO UPDATE
        SET n = excluded.n, min = excluded.min, max = excluded.max, sum = excluded.sum, area = excluded.area,
            first = excluded.first, last = excluded.last, known = excluded.known, first_time = excluded.first_time,
            last_time = excluded.last_time, n_good = excluded.n_good, holds = excluded.holds
    ),
    -- What each channel carries out of here: where it is something else than before, the next minute is to be made anew.
    carried AS (
        SELECT coalesce(f.channel_id, o.channel_id) AS channel_id
        FROM (SELECT DISTINCT ON (f.channel_id) f.channel_id, f.line FROM fresh AS f ORDER BY f.channel_id, f.bucket DESC) AS f
        FULL JOIN (SELECT DISTINCT ON (o.channel_id) o.channel_id, o.line FROM old AS o ORDER BY o.channel_id, o.bucket DESC) AS o
            ON o.channel_id = f.channel_id
        WHERE float8send((f.line).last) IS DISTINCT FROM float8send((o.line).last)
           OR (f.line).last_time IS DISTINCT FROM (o.line).last_time OR (f.line).holds IS DISTINCT FROM (o.line).holds
        UNION
        SELECT c.id FROM unnest(forced) AS c (id)
    ),
    next AS MATERIALIZED (
        SELECT a.bucket, array_agg(c.channel_id) AS channels
        FROM carried AS c
        CROSS JOIN LATERAL plant.minute_after(c.channel_id, "to") AS a
        GROUP BY a.bucket
    ),
    hours AS (
        SELECT plant.hour_of(m.bucket) AS hour, array_agg(DISTINCT m.channel_id) AS channels
        FROM (
            SELECT n.channel_id, n.bucket FROM new AS n
            UNION ALL
            SELECT g.channel_id, g.bucket FROM gone AS g
            UNION ALL
            -- An hour depends on what is carried into its first minute, though that may be the same itself.
            SELECT f.channel_id, f.bucket FROM fresh AS f WHERE NOT whole OR f.channel_id = ANY (discrete)
        ) AS m
        GROUP BY plant.hour_of(m.bucket)
        UNION ALL
        SELECT plant.hour_of(n.bucket), n.channels FROM next AS n
    )
    INSERT INTO plant.rollup_dirty (from_time, to_time, channels, hours)
    SELECT n.bucket, n.bucket + INTERVAL '1 minute', n.channels, false FROM next AS n
    UNION ALL
    SELECT h.hour, h.hour + INTERVAL '1 hour', CASE WHEN NOT whole OR cardinality(h.channels) <= 500 THEN h.channels END, true
    FROM hours AS h;

    IF discrete <> '{}' THEN
        DELETE FROM plant.rollup_states_1m AS r
        WHERE r.channel_id = ANY (discrete) AND r.bucket >= "from" AND r.bucket < "to";
        INSERT INTO plant.rollup_states_1m SELECT s.* FROM plant.state_minutes_of(discrete, "from", "to") AS s;
    END IF;
END
$$;

-- Make an hour anew, from its minutes.
CREATE FUNCTION plant.refresh_hour(hour timestamptz) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog
SET plan_cache_mode = force_custom_plan
SET jit = off
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
    whole    boolean;
    ids      int[];
    discrete int[];
BEGIN
    WITH taken AS (
        DELETE FROM plant.rollup_dirty AS d WHERE d.hours AND d.from_time = hour AND d.to_time = hour + INTERVAL '1 hour'
        RETURNING d.channels
    )
    SELECT bool_or(t.channels IS NULL), array_agg(DISTINCT c.id) FILTER (WHERE c.id IS NOT NULL)
    INTO whole, ids
    FROM taken AS t
    LEFT JOIN LATERAL unnest(t.channels) AS c (id) ON true;
    IF whole THEN
        ids := plant.rollup_channels(ids);
    END IF;
    ids := plant.not_dropped(ids, '1m', hour);
    WITH fresh AS MATERIALIZED (
        SELECT m AS line, m.channel_id FROM plant.hours_of(ids, hour) AS m
    ),
    removed AS (
        DELETE FROM plant.rollup_1h AS r
        WHERE r.channel_id = ANY (ids) AND r.bucket = hour
          AND NOT EXISTS (SELECT FROM fresh AS f WHERE f.channel_id = r.channel_id)
    )
    INSERT INTO plant.rollup_1h SELECT (f.line).* FROM fresh AS f
    ON CONFLICT (channel_id, bucket) DO UPDATE
    SET n = excluded.n, min = excluded.min, max = excluded.max, sum = excluded.sum, area = excluded.area,
        first = excluded.first, last = excluded.last, known = excluded.known, first_time = excluded.first_time,
        last_time = excluded.last_time, n_good = excluded.n_good, holds = excluded.holds;
    discrete := ARRAY(SELECT c.id FROM plant.channel AS c WHERE c.kind = 'discrete' AND c.id = ANY (ids));
    IF discrete <> '{}' THEN
        DELETE FROM plant.rollup_states_1h AS r WHERE r.channel_id = ANY (discrete) AND r.bucket = hour;
        INSERT INTO plant.rollup_states_1h SELECT s.* FROM plant.state_hours_of(discrete, hour) AS s;
    END IF;
END
$$;

-- Every channel that may have samples, and some others.
CREATE FUNCTION plant.rollup_channels(others int[]) RETURNS int[]
    LANGUAGE sql STABLE
    RETURN ARRAY(SELECT c.id FROM plant.channel AS c WHERE c.kind <> 'text'
                 UNION SELECT o.id FROM unnest(others) AS o (id)
                 ORDER BY 1);

-- One portion of what is dirty, the newest first; false: nothing is, NULL: another session is at it. Minutes after
-- closed stay dirty. A portion is some 20,000 minutes of channels: a minute of 20,000 at once, and the minutes of an hour in
-- their order, as each carries a value into the next; of few channels a day.
CREATE FUNCTION plant.refresh_portion(closed timestamptz) RETURNS boolean
LANGUAGE plpgsql
SET search_path = pg_catalog
SET plan_cache_mode = force_custom_plan
AS $$
DECLARE
    budget CONSTANT int := 20000; -- minutes of channels
    packed CONSTANT int := 50;    -- channels whose packed day becomes rows at once
    minute   timestamptz; -- the newest dirty one, to be made from samples
    hour     timestamptz; -- to be made from minutes
    unit     tstzrange;
    ids      int[];
    everyone int[];
    "from"   timestamptz;
    "to"     timestamptz;
BEGIN
    IF NOT pg_try_advisory_xact_lock(7361023400154) THEN
        RETURN NULL;
    END IF;
    minute := (SELECT least(d.to_time, closed) - INTERVAL '1 minute'
               FROM plant.rollup_dirty AS d
               WHERE NOT d.hours AND d.from_time < closed
               ORDER BY d.to_time DESC LIMIT 1);
    hour := (SELECT d.from_time
             FROM plant.rollup_dirty AS d
             WHERE d.hours AND d.to_time <= closed
             ORDER BY d.to_time DESC LIMIT 1);
    IF hour > plant.hour_of(minute) OR minute IS NULL AND hour IS NOT NULL THEN
        PERFORM plant.refresh_hour(hour);
        RETURN true;
    ELSIF minute IS NULL THEN
        RETURN false;
    END IF;
    -- The first minutes of the newest hour that are dirty of any channel, and who else is dirty in them.
    WITH dirty AS MATERIALIZED (
        SELECT greatest(d.from_time, plant.hour_of(minute)) AS from_time,
               least(d.to_time, closed, plant.hour_of(minute) + INTERVAL '1 hour') AS to_time, d.channels
        FROM plant.rollup_dirty AS d
        WHERE NOT d.hours AND d.to_time > plant.hour_of(minute)
          AND d.from_time < least(closed, plant.hour_of(minute) + INTERVAL '1 hour')
    ),
    range AS (
        SELECT lower(r) AS from_time, upper(r) AS to_time
        FROM (SELECT range_agg(tstzrange(d.from_time, d.to_time)) AS ranges FROM dirty AS d WHERE d.channels IS NULL) AS a
        CROSS JOIN unnest(a.ranges) AS r
        ORDER BY 1 LIMIT 1
    )
    SELECT r.from_time, r.to_time,
           plant.rollup_channels(ARRAY(SELECT c.id FROM dirty AS d CROSS JOIN unnest(d.channels) AS c (id)
                                       WHERE d.to_time > r.from_time AND d.from_time < r.to_time))
    INTO "from", "to", everyone
    FROM range AS r;
    ids := everyone;
    -- Else all that is dirty on its day, or where that is more than a portion in its hour.
    IF everyone IS NULL THEN
        FOREACH unit IN ARRAY ARRAY[tstzrange(plant.day_of(minute), plant.day_of(minute) + INTERVAL '24 hours'),
                                    tstzrange(plant.hour_of(minute), plant.hour_of(minute) + INTERVAL '1 hour')] LOOP
            SELECT min(greatest(d.from_time, lower(unit))), max(least(d.to_time, closed, upper(unit))),
                   array_agg(DISTINCT c.id)
            INTO "from", "to", ids
            FROM plant.rollup_dirty AS d
            CROSS JOIN LATERAL unnest(d.channels) AS c (id)
            WHERE NOT d.hours AND d.to_time > lower(unit) AND d.from_time < least(closed, upper(unit));
            EXIT WHEN cardinality(ids) * date_part('epoch', "to" - "from") / 60 <= budget;
        END LOOP;
    END IF;
    IF cardinality(ids) > packed
       AND EXISTS (SELECT FROM plant.rollup_1m_packed AS p WHERE p.day = plant.day_of(minute) AND p.channel_id = ANY (ids)) THEN
        ids := ids[1:packed];
    END IF;
    "to" := least("to", "from" + INTERVAL '1 minute' * greatest(1, budget / greatest(1, cardinality(ids))));
    PERFORM plant.refresh_minutes(ids, everyone, "from", "to");
    RETURN true;
EXCEPTION WHEN serialization_failure OR unique_violation THEN
    RETURN NULL; -- another session ended what it was at between our snapshot and our lock
END
$$;

-- Make whatever is dirty anew: each portion in a transaction of its own, in which nobody who writes waits. Two at once do
-- no harm, the second ends at once. A minute is made when it has been over for some seconds, an hour likewise.
CREATE PROCEDURE plant.refresh_rollups()
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
        done := plant.refresh_portion(plant.minute_of(clock_timestamp() - grace));
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
COMMENT ON PROCEDURE plant.refresh_rollups IS 'Make the rollups of all closed minutes and hours that are dirty, newest first, in small transactions. CALL it outside a transaction.';

-- What was written before this migration.
INSERT INTO plant.rollup_dirty (from_time, to_time)
SELECT k.range_start, k.range_end
FROM timescaledb_information.chunks AS k
WHERE k.hypertable_schema = 'plant' AND k.hypertable_name IN ('samples_raw', 'samples_packed');
