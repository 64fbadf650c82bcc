-- aggregates: what historians compute over intervals: averages, totals, percentiles, times in a state, increases
--
-- A row for each channel, aggregate and interval; the aggregates of OPC UA are defined by OPC 10000-13. status is an
-- OPC UA StatusCode with the bits Calculated and Partial; where it is Bad, there is no value.
--
--   time_average       TimeAverage; with simple_bounds, TimeAverage2
--   total              Total, in the unit of its rate: of t/h it is t; with simple_bounds, Total2
--   duration_in_state  DurationInStateZero for any state, in seconds
--   count_transitions  NumberOfTransitions
--   increase, rate     by how much a counter increased, and how much a second, whatever resets and wraps there were
--   percentile         of the samples, each of which counts the same; also minimum and maximum
--
-- seconds is how much of the interval counts: of time_average and total the time with a value, of duration_in_state
-- the time in any Good state, of the others the time from the first to the last data.
--
-- Parameters
--   since       timestamptz  the first interval begins here
--   until       timestamptz  the last one ends here
--   channels    text[]       names or patterns [NULL: all]
--   aggregate   text         one of those above, or several with commas between them [time_average]
--   step        interval     length of an interval [NULL: one interval]
--   in_state    float8       state of duration_in_state [1]
--   fraction    float8       0 to 1, fraction of percentile [0.5]
--   per         interval     time of the rate that total is of [NULL: that of the unit, such as 1 hour of t/h, or 1 s]
--   stepped     boolean      whether a value holds until the next one, else lines join them [NULL: unless analog]
--   simple_bounds           boolean  whether what follows a Bad sample has no value, else these are skipped [false]
--   treat_uncertain_as_bad  boolean  whether Uncertain samples count as Bad ones [true]
--   percent_data_bad        int4     share from which on the result is Bad [100]
--   percent_data_good       int4     share from which on it is Good; else it is Uncertain [100]
--   use_sloped_extrapolation  boolean  whether the last line goes on, else the last value holds [false]
-- Legal: step a 1000000th..100 years, in_state -1e280..1e280, fraction 0..1, per 1 us..100 years
-- Legal: percent_data_bad 0..100, percent_data_good 0..100
-- Judges: numeric channels
-- Portions: channel
-- Shown first: channel, time, aggregate, value, unit, quality
-- Cost: one pass over the samples, 0.5 s per million; of channels without any nearby, over those of 24 hours around.
-- Example: plantlog ask aggregates --from 2026-03-09T10:00Z --to 2026-03-09T11:00Z --step '10 min'
WITH
computed AS (
    SELECT unnest(aggregates_of(a.fields, epoch_us(since), epoch_us(until), epoch_us(coalesce(step, until - since)),
                                list_transform(string_split(aggregate, ','), lambda name: trim(name)), in_state,
                                fraction,
                                {'stepped': stepped, 'simple_bounds': simple_bounds,
                                 'treat_uncertain_as_bad': treat_uncertain_as_bad,
                                 'percent_data_bad': percent_data_bad, 'percent_data_good': percent_data_good,
                                 'use_sloped_extrapolation': use_sloped_extrapolation}), recursive := true)
    FROM fields_of(channels, since - INTERVAL '24 hours', until + INTERVAL '24 hours', NULL) AS a
),
named AS (
    SELECT m.channel_id, m.time, trim(list_extract(string_split(aggregate, ','), m.number + 1)) AS name,
           least(m.time + coalesce(step, until - since), until) AS ends, nullif(m.value, 'NaN'::DOUBLE) AS result,
           m.seconds, m.status
    FROM computed AS m
),
-- Units over time. Of t/h, an hour and t; without a known unit of time behind the last slash, a second and bar·s.
versions AS (
    SELECT v.channel_id, v.valid_from, v.unit, regexp_extract(v.unit, '/([^/]*)$', 1) AS tail,
           v.unit IS DISTINCT FROM lag(v.unit, 1, v.unit) OVER (PARTITION BY v.channel_id
                                                                ORDER BY v.valid_from) AS is_new
    FROM channel_version AS v
    WHERE channels IS NULL OR v.channel_id IN channel_ids(channels)
),
units AS (
    SELECT v.channel_id, v.valid_from, v.unit, v.tail, v.is_new,
           CASE WHEN length(v.unit) > length(v.tail) + 1
                THEN CASE trim(v.tail) WHEN 's' THEN 1 WHEN 'sec' THEN 1 WHEN 'min' THEN 60
                                       WHEN 'h' THEN 3600 WHEN 'hr' THEN 3600
                                       WHEN 'd' THEN 86400 WHEN 'day' THEN 86400 END END AS known_seconds
    FROM versions AS v
),
rates AS (
    SELECT u.channel_id, u.valid_from, u.unit, u.is_new, coalesce(u.known_seconds, 1) AS rate_seconds,
           CASE WHEN u.known_seconds IS NOT NULL THEN rtrim(left(u.unit, length(u.unit) - length(u.tail) - 1))
                WHEN u.unit = '' THEN 's' ELSE u.unit || '·s' END AS total_unit
    FROM units AS u
),
-- Values in two units have no total: Bad_AggregateInvalidInputs.
judged AS (
    SELECT n.channel_id, n.time, n.name, n.seconds, n.result, n.status, r.unit, r.total_unit, r.rate_seconds,
           coalesce(epoch(per), r.rate_seconds) AS total_seconds,
           n.name = 'total' AND n.status >= 0 AND c.channel_id IS NOT NULL AS is_mixed
    FROM named AS n
    ASOF LEFT JOIN rates AS r ON r.channel_id = n.channel_id AND r.valid_from <= n.time
    LEFT JOIN (SELECT DISTINCT n.channel_id, n.time
               FROM named AS n
               JOIN (FROM rates AS r WHERE r.is_new) AS r
                 ON r.channel_id = n.channel_id AND r.valid_from > n.time AND r.valid_from < n.ends
               WHERE n.name = 'total') AS c ON c.channel_id = n.channel_id AND c.time = n.time
)
SELECT c.name AS channel, j.time, j.name AS aggregate,
       CASE WHEN j.is_mixed THEN NULL WHEN j.name = 'total' THEN j.result / j.total_seconds ELSE j.result END AS value,
       CASE j.name WHEN 'total'
                   THEN CASE WHEN j.total_seconds = j.rate_seconds THEN j.total_unit ELSE j.unit || '·' || per END
                   WHEN 'rate' THEN j.unit || '/s'
                   WHEN 'duration_in_state' THEN 's'
                   WHEN 'count_transitions' THEN ''
                   ELSE j.unit END AS unit,
       quality(CASE WHEN j.is_mixed THEN -2133458944 ELSE j.status END) AS quality,
       CASE WHEN j.is_mixed THEN -2133458944 ELSE j.status END AS status, j.seconds
FROM judged AS j
JOIN channels_like(channels) AS c ON c.channel_id = j.channel_id;

SELECT *
FROM portion_rows
ORDER BY channel, aggregate, time;
