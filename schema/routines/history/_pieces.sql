-- What aggregates of OPC 10000-13 are computed from: the time between two points of a channel, each part of it in one
-- interval of plant._intervals. A value is a straight line from first to last, or constant where stepped.
--
-- The points are the samples, and the start of each recorded gap, 1 µs after it, as a Bad one. A value holds at most
-- hold_limit, never beyond now or the channel's retirement; samples further apart are not connected.
--
-- Simple bounds (3.1.9): what follows a Bad point has no value (NULL). A line that would end in a Bad point is constant,
-- and Uncertain. Interpolated bounds (3.1.8): Bad points are skipped, and what was drawn across one is Uncertain; so is the
-- value after the last sample. If Uncertain samples are treated as Bad, they are.
--
--   begins, ends  µs since from
--   good_until    the value is Good before this time, and Uncertain from it on
--   class         of the point: plant.sample_class
--   status        of the sample at begins; NULL: there is none
--   gap           the point is the start of a gap
--   data_begins   before this time there is no sample (-infinity: there is one)
--   data_ends     the last value holds until then (infinity: a later sample exists)
CREATE OR REPLACE FUNCTION plant._pieces(
    channel int, "from" timestamptz, "to" timestamptz, step interval, stepped boolean, simple_bounds boolean,
    treat_uncertain_as_bad boolean, use_sloped_extrapolation boolean
)
RETURNS TABLE (bucket int, begins float8, ends float8, first float8, last float8, good_until float8, class int, status int,
               gap boolean, data_begins float8, data_ends float8)
LANGUAGE plpgsql STABLE ROWS 100000
SET search_path = pg_catalog
SET plan_cache_mode = force_custom_plan -- chunks are known to the planner by their times
SET jit = off
SET max_parallel_workers_per_gather = 0
AS $$
DECLARE
    hold   CONSTANT float8 := date_part('epoch', plant.hold_limit()) * 1e6;
    length CONSTANT float8 := round(date_part('epoch', "to" - "from") * 1e6);
    every  CONSTANT float8 := least(length, coalesce(round(date_part('epoch', step) * 1e6), length));
    worst  CONSTANT text := CASE WHEN simple_bounds THEN 'bad' WHEN treat_uncertain_as_bad THEN 'good' ELSE 'uncertain' END;
    worst_class CONSTANT int := CASE WHEN treat_uncertain_as_bad THEN 0 ELSE 1 END;
    kind   CONSTANT text := plant._kind(channel);
    known_to float8; -- µs since from
    since  timestamptz;
    until  timestamptz;
    gaps   timestamptz[];
    newest timestamptz;
    begin_of_data float8 := '-infinity';
    end_of_data   float8 := 'infinity';
    stays  boolean;
BEGIN
    known_to := (SELECT round(date_part('epoch', least(now(), c.retired_at, s.retired_at) - "from") * 1e6)
                 FROM plant.channel AS c JOIN plant.source AS s ON s.id = c.source_id
                 WHERE c.id = channel);
    IF simple_bounds IS NULL OR treat_uncertain_as_bad IS NULL OR use_sloped_extrapolation IS NULL THEN
        RAISE EXCEPTION 'simple_bounds %, treat_uncertain_as_bad %, use_sloped_extrapolation %', simple_bounds,
            treat_uncertain_as_bad, use_sloped_extrapolation
            USING ERRCODE = 'null_value_not_allowed', HINT = 'Each is true or false; only stepped may be NULL.';
    END IF;
    PERFORM plant._require_samples(channel, "from", "to");
    stays := coalesce(stepped, kind <> 'analog');

    -- The points around the interval, so far as they have to do with it.
    since := (SELECT b.time FROM plant._nearest_value(channel, "from", false, worst) AS b);
    IF since IS NOT NULL AND use_sloped_extrapolation AND NOT simple_bounds THEN -- by the last two points
        since := coalesce((SELECT b.time FROM plant._nearest_value(channel, since, false, worst) AS b), since);
    ELSIF since IS NULL AND NOT EXISTS (SELECT FROM plant._nearest_value(channel, "from", false)) THEN
        begin_of_data := coalesce(
            round(date_part('epoch', plant.first_sample(channel, "from", "to") - "from") * 1e6), length);
    END IF;
    until := (SELECT a.time FROM plant._nearest_value(channel, "to" - INTERVAL '1 microsecond', true, worst) AS a);
    gaps := (SELECT g.begins FROM plant.gap_begins(ARRAY[channel], coalesce(since, "from" - plant.hold_limit()),
                                                             coalesce(until, "to")) AS g);
    IF until IS NULL AND NOT EXISTS (SELECT FROM plant._nearest_value(channel, "to" - INTERVAL '1 microsecond', true)) THEN
        newest := (SELECT b.time
                   FROM plant._nearest_value(channel, "to", false, 'bad',
                                             "to" - coalesce(since, "from") + plant.hold_limit()) AS b);
        end_of_data := coalesce((SELECT round(date_part('epoch', min(g.g) - "from") * 1e6) + 1 FROM unnest(gaps) AS g (g)
                                 WHERE g.g >= newest),
                                CASE WHEN newest IS NULL THEN '-infinity'
                                     ELSE least(round(date_part('epoch', newest - "from") * 1e6) + hold, known_to) END);
    END IF;

    RETURN QUERY
    WITH
    points AS (
        SELECT round(date_part('epoch', s.time - "from") * 1e6) AS at,
               CASE WHEN abs(s.value) < 1e-200 THEN 0 ELSE s.value END AS value, -- a product would be out of range
               plant.sample_class(s.value, s.status) AS class, s.status
        FROM plant.samples_between(ARRAY[channel], coalesce(since, "from"),
                                   coalesce(until + INTERVAL '1 microsecond', "to")) AS s
        UNION ALL
        SELECT round(date_part('epoch', g.g - "from") * 1e6) + 1, NULL, 3, NULL FROM unnest(gaps) AS g (g)
    ),
    course AS (
        SELECT p.at, p.value, p.class, p.status, lead(p.at) OVER w AS next_at, lead(p.value) OVER w AS next_value,
               lead(p.class) OVER w AS next_class
        FROM points AS p
        WINDOW w AS (ORDER BY p.at, p.class DESC)
    ),
    usable AS (
        SELECT c.at, c.value, c.status, c.class, CASE WHEN c.next_class > worst_class THEN c.next_at END AS bad_at,
               lead(c.at) OVER w AS next_at, lead(c.value) OVER w AS next_value, lead(c.class) OVER w AS next_class,
               lag(c.at) OVER w AS last_at, lag(c.value) OVER w AS last_value
        FROM course AS c
        WHERE NOT simple_bounds AND c.class <= worst_class
        WINDOW w AS (ORDER BY c.at)
    ),
    segments AS (
        SELECT c.at, least(coalesce(c.next_at, greatest(c.at, known_to)),
                           CASE WHEN c.class <= worst_class THEN c.at + hold END) AS ends,
               CASE WHEN c.class <= worst_class THEN c.value END AS first,
               CASE WHEN c.class > worst_class THEN NULL WHEN j.joined THEN c.next_value ELSE c.value END AS last,
               CASE WHEN c.class > 0 OR NOT stays AND (NOT j.joined OR c.next_class > 0) THEN '-infinity'::float8
                    ELSE 'infinity' END AS good_until, c.class, c.status
        FROM course AS c
        CROSS JOIN LATERAL (
            SELECT coalesce(NOT stays AND c.next_class <= worst_class AND c.next_at - c.at <= hold, false) AS joined
        ) AS j
        WHERE simple_bounds
        UNION ALL
        SELECT u.at, e.ends, u.value,
               CASE WHEN stays THEN u.value
                    WHEN e.found THEN u.next_value
                    WHEN use_sloped_extrapolation AND u.at - u.last_at <= hold
                    THEN u.value + (u.value - u.last_value) * ((e.ends - u.at) / (u.at - u.last_at))
                    ELSE u.value END,
               CASE WHEN u.class > 0 OR NOT e.found THEN '-infinity'
                    WHEN stays THEN coalesce(u.bad_at, 'infinity')
                    WHEN u.bad_at IS NULL AND u.next_class = 0 THEN 'infinity'
                    ELSE '-infinity' END, u.class, u.status
        FROM usable AS u
        CROSS JOIN LATERAL (
            SELECT coalesce(u.next_at - u.at <= hold, false) AS found,
                   CASE WHEN u.next_at - u.at <= hold THEN u.next_at
                        ELSE least(u.at + hold, coalesce(u.next_at, greatest(u.at, known_to))) END AS ends
        ) AS e
    ),
    parts AS (
        SELECT s.*, generate_series(floor(greatest(s.at, 0) / every)::int,
                                    ceil(least(s.ends, length) / every)::int - 1) AS bucket
        FROM segments AS s
        WHERE s.ends > s.at AND s.ends > 0 AND s.at < length
    )
    SELECT p.bucket, x.begins, x.ends, p.first + x.rise * (x.begins - p.at), p.first + x.rise * (x.ends - p.at),
           p.good_until, p.class, CASE WHEN x.begins = p.at THEN p.status END, p.class = 3, begin_of_data, end_of_data
    FROM parts AS p
    CROSS JOIN LATERAL (
        SELECT greatest(p.at, p.bucket * every) AS begins, least(p.ends, (p.bucket + 1) * every, length) AS ends,
               (p.last - p.first) / (p.ends - p.at) AS rise
    ) AS x;
END
$$;
