-- Coverage day by day: what is asked of one day reads the samples of that day only, and what was backfilled no longer
-- counts what the source's history did not have.

CREATE FUNCTION plant.coverage_of(day timestamptz)
RETURNS TABLE (
    channel_id         int,
    name               text,
    expected           bigint,
    got                bigint,
    got_good           bigint,
    missing            bigint,
    missing_seconds    float8,
    backfilled_seconds float8
)
LANGUAGE sql STABLE
-- Not with the caller's search path: functions in it could stand in the way of those meant here.
SET search_path = pg_catalog
AS $$
WITH
got AS (
    SELECT s.channel_id, count(*) AS got, count(*) FILTER (WHERE plant.quality(s.status) <> 'bad') AS got_good,
           min(s.time) AS first_time
    FROM plant.samples_between(day, day + INTERVAL '1 day') AS s
    GROUP BY s.channel_id
),
-- Gaps cut at midnight; overlapping ones of a channel are joined, so that no second counts twice.
pieces AS (
    SELECT g.channel_id, g.backfilled_at IS NOT NULL AS backfilled,
           tstzrange(greatest(g.from_time, day), least(coalesce(g.to_time, now()), day + INTERVAL '1 day')) AS piece
    FROM plant.gap_channel AS g
    WHERE g.from_time < day + INTERVAL '1 day'
      AND coalesce(g.to_time, now()) > day
      AND greatest(g.from_time, day) < least(coalesce(g.to_time, now()), day + INTERVAL '1 day')
),
joined AS (
    SELECT p.channel_id, coalesce(range_agg(p.piece) FILTER (WHERE NOT p.backfilled), '{}') AS missing,
           coalesce(range_agg(p.piece) FILTER (WHERE p.backfilled), '{}') AS backfilled
    FROM pieces AS p
    GROUP BY p.channel_id
),
lengths AS (
    SELECT j.channel_id, j.missing @> day AS from_midnight,
           -- Where a gap begins or ends, there is a sample: of one as long as three intervals two samples are missing.
           (SELECT count(*) FILTER (WHERE lower(r) > day)
                   + count(*) FILTER (WHERE upper(r) < least(day + INTERVAL '1 day', now()))
            FROM unnest(j.missing) AS r) AS ends,
           (SELECT coalesce(sum(extract(epoch FROM upper(r) - lower(r))), 0)::float8 FROM unnest(j.missing) AS r) AS missing,
           (SELECT coalesce(sum(extract(epoch FROM upper(r) - lower(r))), 0)::float8
            FROM unnest(j.backfilled - j.missing) AS r) AS backfilled
    FROM joined AS j
),
-- A channel that had nothing the day before, not even a gap, began on this day.
begun AS (
    SELECT g.channel_id,
           CASE
               WHEN coalesce(l.from_midnight, false)
                 OR EXISTS (SELECT FROM plant.samples_between(ARRAY[g.channel_id], day - INTERVAL '1 day', day))
               THEN day ELSE g.first_time
           END AS since
    FROM got AS g
    LEFT JOIN lengths AS l ON l.channel_id = g.channel_id
)
SELECT c.id, c.name,
       CASE WHEN i.seconds IS NOT NULL
            THEN greatest(0, round(extract(epoch FROM least(day + INTERVAL '1 day', now()) - coalesce(b.since, day))::numeric
                                   / i.seconds::numeric)::bigint) END,
       coalesce(g.got, 0), coalesce(g.got_good, 0),
       CASE WHEN i.seconds IS NOT NULL THEN greatest(0, round(coalesce(l.missing, 0) / i.seconds - coalesce(l.ends, 0) / 2.0))::bigint END,
       coalesce(l.missing, 0), coalesce(l.backfilled, 0)
FROM got AS g
FULL JOIN lengths AS l ON l.channel_id = g.channel_id
JOIN plant.channel AS c ON c.id = coalesce(g.channel_id, l.channel_id)
LEFT JOIN begun AS b ON b.channel_id = c.id
LEFT JOIN plant.channel_interval AS i ON i.channel_id = c.id
$$;
COMMENT ON FUNCTION plant.coverage_of IS 'Coverage of each channel on the day (UTC) that begins then: samples expected (NULL where the channel reports changes only), got, missing, and seconds missing and backfilled.';

DROP VIEW plant.coverage;
CREATE VIEW plant.coverage AS
WITH
-- From the first chunk or the first gap on: chunks are known without reading samples.
days AS (
    SELECT generate_series(
               date_trunc('day', least((SELECT min(k.range_start) FROM timescaledb_information.chunks AS k
                                        WHERE k.hypertable_schema = 'plant' AND k.hypertable_name IN ('samples_raw', 'samples_packed')),
                                       (SELECT min(g.from_time) FROM plant.gap AS g)), 'UTC'),
               now(), INTERVAL '1 day') AS day
)
SELECT d.day, o.*
FROM days AS d
CROSS JOIN LATERAL plant.coverage_of(d.day) AS o;
COMMENT ON VIEW plant.coverage IS 'By channel and day (UTC): samples expected (NULL where the channel reports changes only), got, missing, and seconds missing and backfilled. Filter by day.';
GRANT SELECT ON plant.coverage TO plant_reader, plant_ingest, plant_owner;
GRANT EXECUTE ON FUNCTION plant.coverage_of TO plant_reader, plant_ingest, plant_owner;
