-- Recompute an hour from its minutes. If there are many channels, a part of them; the others stay dirty.
CREATE OR REPLACE FUNCTION plant.refresh_hour(hour timestamptz) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog
SET plan_cache_mode = force_custom_plan
SET jit = off
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
    most     int := 2000; -- channels
    parts    CONSTANT int := 20;
    whole    boolean;
    ids      int[];
    discrete int[];
    counters int[];
BEGIN
    WITH deleted AS (
        DELETE FROM plant.rollup_dirty AS d
        WHERE d.hours AND d.from_time = hour AND d.to_time = hour + INTERVAL '1 hour'
        RETURNING d.channels
    )
    SELECT bool_or(t.channels IS NULL), array_agg(DISTINCT c.id) FILTER (WHERE c.id IS NOT NULL)
    INTO whole, ids
    FROM deleted AS t
    LEFT JOIN LATERAL unnest(t.channels) AS c (id) ON true;
    IF whole THEN
        ids := plant.rollup_channels(ids);
    END IF;
    most := greatest(most, cardinality(ids) / parts);
    IF cardinality(ids) > most THEN
        INSERT INTO plant.rollup_dirty (from_time, to_time, channels, hours)
        VALUES (hour, hour + INTERVAL '1 hour', ids[most + 1:], true);
        ids := ids[:most];
    END IF;
    ids := plant.retained_channels(ids, '1m', hour);
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
    counters := ARRAY(SELECT c.id FROM plant.channel AS c WHERE c.kind = 'counter' AND c.id = ANY (ids));
    IF counters <> '{}' THEN
        DELETE FROM plant.rollup_increases_1h AS r WHERE r.channel_id = ANY (counters) AND r.bucket = hour;
        INSERT INTO plant.rollup_increases_1h SELECT s.* FROM plant.increase_hours_of(counters, hour) AS s;
    END IF;
END
$$;
