-- The buckets of plant.series, of a width that plant.series_width gives: at least a minute (an hour) if samples
-- (minutes) of the interval are not stored. Samples that the session was given (plant.archived_samples)
-- count as stored.
CREATE OR REPLACE FUNCTION plant._series(channel int, "from" timestamptz, "to" timestamptz, width interval)
RETURNS TABLE ("time" timestamptz, min float8, avg float8, max float8, n bigint, n_good bigint, first float8,
               last float8, source text)
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog
SET plan_cache_mode = force_custom_plan -- chunks are known to the planner by their times
SET jit = off
SET max_parallel_workers_per_gather = 0
AS $$
DECLARE
    epoch CONSTANT timestamptz := '2000-01-01 00:00:00+00';
    dirty_minutes tstzmultirange;
    dirty_hours   tstzmultirange;
    hours   tstzmultirange := '{}';
    minutes tstzmultirange := '{}';
    given CONSTANT tstzmultirange := plant.archived_ranges(channel);
    rest  tstzmultirange;
    r     tstzrange;
    of_hours   plant.series_part[] := '{}';
    of_minutes plant.series_part[] := '{}';
    of_samples plant.series_part[] := '{}';
BEGIN
    IF "from" >= "to" THEN
        RETURN;
    END IF;
    IF width >= INTERVAL '1 minute' THEN
        SELECT range_agg(tstzrange(d.from_time, d.to_time)) FILTER (WHERE NOT d.hours),
               range_agg(tstzrange(d.from_time, d.to_time)) FILTER (WHERE d.hours)
        INTO dirty_minutes, dirty_hours
        FROM plant.rollup_dirty AS d
        WHERE d.to_time > "from" AND d.from_time < "to" AND (d.channels IS NULL OR channel = ANY (d.channels));
        dirty_minutes := coalesce(dirty_minutes, '{}');
        IF (SELECT count(*) FROM unnest(dirty_minutes)) > 20 THEN
            dirty_minutes := plant.widen_ranges(dirty_minutes, INTERVAL '1 hour');
        END IF;
        IF width >= INTERVAL '1 hour' THEN
            hours := plant.whole_buckets(tstzrange("from", "to"), INTERVAL '1 hour')
                     - plant.widen_ranges(dirty_minutes, INTERVAL '1 hour') - coalesce(dirty_hours, '{}');
            hours := hours + plant.hours_without_minutes(channel, tstzmultirange(tstzrange("from", "to")) - hours);
        END IF;
        minutes := plant.whole_buckets(tstzrange("from", "to"), INTERVAL '1 minute') - dirty_minutes - hours;
        minutes := minutes
                   + (plant.minutes_without_samples(channel, tstzmultirange(tstzrange("from", "to")) - hours - minutes)
                      - hours);
    END IF;
    FOR r IN SELECT u FROM unnest(hours) AS u LOOP
        of_hours := of_hours || ARRAY(
            SELECT ROW(date_bin(width, h.bucket, epoch), min(h.bucket), sum(h.n), sum(h.n_good), min(h.min), max(h.max),
                       sum(h.sum ORDER BY h.bucket),
                       (array_agg(h.first ORDER BY h.bucket) FILTER (WHERE h.n_good > 0))[1],
                       (array_agg(h.last ORDER BY h.bucket DESC) FILTER (WHERE h.n_good > 0))[1])::plant.series_part
            FROM plant.rollup_1h AS h
            WHERE h.channel_id = channel AND h.bucket >= lower(r) AND h.bucket < upper(r)
            GROUP BY date_bin(width, h.bucket, epoch));
    END LOOP;
    FOR r IN SELECT u FROM unnest(minutes) AS u LOOP
        of_minutes := of_minutes || ARRAY(
            SELECT ROW(date_bin(width, m.bucket, epoch), min(m.bucket), sum(m.n), sum(m.n_good), min(m.min), max(m.max),
                       sum(m.sum ORDER BY m.bucket),
                       (array_agg(m.first ORDER BY m.bucket) FILTER (WHERE m.n_good > 0))[1],
                       (array_agg(m.last ORDER BY m.bucket DESC) FILTER (WHERE m.n_good > 0))[1])::plant.series_part
            FROM plant.minutes_between(ARRAY[channel], lower(r), upper(r)) AS m
            GROUP BY date_bin(width, m.bucket, epoch));
    END LOOP;
    rest := tstzmultirange(tstzrange("from", "to")) - hours - minutes;
    FOR r IN SELECT unnest(rest - given) UNION ALL SELECT unnest(rest * given) LOOP
        of_samples := of_samples || ARRAY(
            SELECT ROW(date_bin(width, s.time, epoch), min(s.time), count(*), count(s.good), min(s.good), max(s.good),
                       coalesce(sum(plant.rollup_weight(s.good) ORDER BY s.time), 0),
                       (array_agg(s.good ORDER BY s.time) FILTER (WHERE s.good IS NOT NULL))[1],
                       (array_agg(s.good ORDER BY s.time DESC) FILTER (WHERE s.good IS NOT NULL))[1])::plant.series_part
            FROM (SELECT b.time, CASE WHEN b.status >= 0 AND b.value <> 'NaN' THEN b.value END AS good
                  FROM (SELECT u.time, u.value, u.status
                        FROM plant.samples_between(ARRAY[channel], lower(r), upper(r)) AS u
                        WHERE NOT given @> r
                        UNION ALL
                        SELECT a.time, a.value, a.status FROM plant.archived_samples(channel, lower(r), upper(r)) AS a
                        WHERE given @> r) AS b) AS s
            GROUP BY date_bin(width, s.time, epoch));
    END LOOP;
    RETURN QUERY
    SELECT p.bucket, min(p.min),
           plant.rollup_mean(sum(p.sum ORDER BY p.at), sum(p.n_good)::float8, min(p.min), max(p.max)),
           max(p.max), sum(p.n)::bigint, sum(p.n_good)::bigint,
           (array_agg(p.first ORDER BY p.at) FILTER (WHERE p.n_good > 0))[1],
           (array_agg(p.last ORDER BY p.at DESC) FILTER (WHERE p.n_good > 0))[1],
           (ARRAY['raw', '1m', '1h'])[max(p.level)]
    FROM (
        SELECT 3 AS level, h.* FROM unnest(of_hours) AS h
        UNION ALL
        SELECT 2, m.* FROM unnest(of_minutes) AS m
        UNION ALL
        SELECT 1, s.* FROM unnest(of_samples) AS s
    ) AS p
    GROUP BY p.bucket
    ORDER BY p.bucket;
END
$$;
