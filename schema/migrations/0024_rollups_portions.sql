-- Refreshing makes what is dirty, and little else. Until now a portion was all channels that were dirty on a day (or in an
-- hour) in all minutes between the first and the last that was: a gap of one channel made the minutes of all others again.
-- And an hour was made as soon as the newest minute was older than it, though what older minutes carry made it dirty again.

-- One portion of what is dirty, the newest first; false: nothing is, NULL: another session is at it. Minutes after
-- closed stay dirty. A portion is some 20,000 minutes of channels: a minute of 20,000 at once, and the minutes of an hour in
-- their order, as each carries a value into the next; of few channels a day. Dirty rows go together as long as at most
-- half of what they span is not dirty; some 200 minutes cost as much as a portion of their own. An hour is made when
-- nothing is dirty from which something could be carried into it.
CREATE OR REPLACE FUNCTION plant.refresh_portion(closed timestamptz) RETURNS boolean
LANGUAGE plpgsql
SET search_path = pg_catalog
SET plan_cache_mode = force_custom_plan
AS $$
DECLARE
    budget CONSTANT int := 20000; -- minutes of channels
    packed CONSTANT int := 50;    -- channels whose packed day becomes rows at once
    apart  CONSTANT int := 200;   -- minutes of channels that cost as much as a portion of their own
    minute   timestamptz; -- the newest dirty one, to be made from samples
    hour     timestamptz; -- to be made from minutes
    unit     tstzrange;
    row      record;
    area     float8 := 0; -- of what is dirty, in minutes of channels
    ids      int[];
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
    -- Else what is dirty first on its day, or where that has more than a portion in its hour.
    IF everyone IS NULL THEN
        unit := tstzrange(plant.day_of(minute), plant.day_of(minute) + INTERVAL '24 hours');
        IF budget < (SELECT sum(cardinality(d.channels)
                                * date_part('epoch', least(d.to_time, closed, upper(unit)) - greatest(d.from_time, lower(unit))) / 60)
                     FROM plant.rollup_dirty AS d
                     WHERE NOT d.hours AND d.to_time > lower(unit) AND d.from_time < least(closed, upper(unit)) AND d.channels IS NOT NULL) THEN
            unit := tstzrange(plant.hour_of(minute), plant.hour_of(minute) + INTERVAL '1 hour');
        END IF;
        FOR row IN
            SELECT greatest(d.from_time, lower(unit)) AS from_time, least(d.to_time, closed, upper(unit)) AS to_time, d.channels
            FROM plant.rollup_dirty AS d
            WHERE NOT d.hours AND d.to_time > lower(unit) AND d.from_time < least(closed, upper(unit)) AND d.channels IS NOT NULL
            ORDER BY 1, 2
        LOOP
            area := area + cardinality(row.channels) * date_part('epoch', row.to_time - row.from_time) / 60;
            more := CASE WHEN row.channels <@ ids THEN ids
                         ELSE ARRAY(SELECT c.id FROM unnest(ids) AS c (id) UNION SELECT c.id FROM unnest(row.channels) AS c (id)) END;
            EXIT WHEN ids IS NOT NULL
                AND cardinality(more) * date_part('epoch', greatest("to", row.to_time) - "from") / 60 > least(budget, 2 * area + apart);
            ids := more;
            "from" := coalesce("from", row.from_time);
            "to" := greatest("to", row.to_time);
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
