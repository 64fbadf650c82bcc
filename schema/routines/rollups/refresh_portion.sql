-- Recompute one portion of the dirty buckets, newest first. Returns false if nothing is dirty, NULL if another session
-- is refreshing. Minutes after closed stay dirty. A portion is about 5,000 minutes of channels: part of one minute of
-- 20,000 channels; the minutes of an hour, in order, since each carries a value into the next; or a day of few
-- channels. Dirty rows are combined as long as at most half of the area that they span is not dirty; about 200 minutes
-- more are allowed, which cost as much as a separate portion. An hour is recomputed once no dirty minute could carry a
-- value into it.
CREATE OR REPLACE FUNCTION plant.refresh_portion(closed timestamptz) RETURNS boolean
LANGUAGE plpgsql
SET search_path = pg_catalog
SET plan_cache_mode = force_custom_plan
AS $$
DECLARE
    budget CONSTANT int := 5000;  -- minutes of channels
    parts  CONSTANT int := 20;    -- of one minute at most: the remainder is written to rollup_dirty each time
    packed CONSTANT int := 50;    -- channels whose packed day is converted to rows at once
    apart  CONSTANT int := 200;   -- minutes of channels that cost as much as a separate portion
    minute   timestamptz; -- the newest dirty one, to be computed from samples
    hour     timestamptz; -- to be computed from minutes
    unit     tstzrange;
    row      record;
    area     float8 := 0; -- dirty minutes of channels
    ids      int[] := '{}';
    more     int[];
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
    IF hour - plant.hold_limit() > minute OR minute IS NULL AND hour IS NOT NULL THEN
        PERFORM plant.refresh_hour(hour);
        RETURN true;
    ELSIF minute IS NULL THEN
        RETURN false;
    END IF;
    -- The first minutes of the newest hour that are dirty for any channel, and all channels that are dirty in them.
    WITH dirty AS MATERIALIZED (
        SELECT greatest(d.from_time, plant.hour_of(minute)) AS from_time,
               least(d.to_time, closed, plant.hour_of(minute) + INTERVAL '1 hour') AS to_time, d.channels
        FROM plant.rollup_dirty AS d
        WHERE NOT d.hours AND d.to_time > plant.hour_of(minute)
          AND d.from_time < least(closed, plant.hour_of(minute) + INTERVAL '1 hour')
    ),
    range AS (
        SELECT lower(r) AS from_time, upper(r) AS to_time
        FROM (SELECT range_agg(tstzrange(d.from_time, d.to_time)) AS ranges FROM dirty AS d
              WHERE d.channels IS NULL) AS a
        CROSS JOIN unnest(a.ranges) AS r
        ORDER BY 1 LIMIT 1
    )
    SELECT r.from_time, r.to_time,
           plant.rollup_channels(ARRAY(SELECT c.id FROM dirty AS d CROSS JOIN unnest(d.channels) AS c (id)
                                       WHERE d.to_time > r.from_time AND d.from_time < r.to_time))
    INTO "from", "to", everyone
    FROM range AS r;
    ids := coalesce(everyone, ids);
    -- Otherwise the first dirty minutes of the day, or of the hour if the day has more than one portion.
    IF everyone IS NULL THEN
        unit := tstzrange(plant.day_of(minute), plant.day_of(minute) + INTERVAL '24 hours');
        IF budget < (SELECT sum(cardinality(d.channels)
                                * date_part('epoch', least(d.to_time, closed, upper(unit))
                                            - greatest(d.from_time, lower(unit))) / 60)
                     FROM plant.rollup_dirty AS d
                     WHERE NOT d.hours AND d.to_time > lower(unit) AND d.from_time < least(closed, upper(unit))
                       AND d.channels IS NOT NULL) THEN
            unit := tstzrange(plant.hour_of(minute), plant.hour_of(minute) + INTERVAL '1 hour');
        END IF;
        FOR row IN
            SELECT greatest(d.from_time, lower(unit)) AS from_time, least(d.to_time, closed, upper(unit)) AS to_time,
                   d.channels
            FROM plant.rollup_dirty AS d
            WHERE NOT d.hours AND d.to_time > lower(unit) AND d.from_time < least(closed, upper(unit))
              AND d.channels IS NOT NULL
            ORDER BY 1, 2
        LOOP
            area := area + cardinality(row.channels) * date_part('epoch', row.to_time - row.from_time) / 60;
            more := ids || ARRAY(SELECT c.id FROM unnest(row.channels) AS c (id) WHERE c.id <> ALL (ids));
            EXIT WHEN ids <> '{}'
                AND cardinality(more) * date_part('epoch', greatest("to", row.to_time) - "from") / 60
                    > least(budget, 2 * area + apart);
            ids := more;
            "from" := coalesce("from", row.from_time);
            "to" := greatest("to", row.to_time);
        END LOOP;
    END IF;
    IF cardinality(ids) > packed
       AND EXISTS (SELECT FROM plant.rollup_1m_packed AS p
                   WHERE p.day = plant.day_of(minute) AND p.channel_id = ANY (ids)) THEN
        ids := ids[1:packed];
    END IF;
    ids := ids[1:greatest(budget, cardinality(ids) / parts)];
    "to" := least("to", "from" + INTERVAL '1 minute' * greatest(1, budget / greatest(1, cardinality(ids))));
    PERFORM plant.refresh_minutes(ids, everyone, "from", "to");
    RETURN true;
EXCEPTION WHEN serialization_failure OR unique_violation THEN
    RETURN NULL; -- another session committed between our snapshot and our lock
END
$$;
