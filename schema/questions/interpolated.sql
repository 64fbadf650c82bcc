-- interpolated: the values of channels at certain times, and the samples before and after each time
--
-- Interpolative of OPC 10000-13, and ReadAtTime of OPC 10000-11. The status of a sample is its own; other values have
-- the bit Interpolated. Where nothing is known, there is no value, and status is Bad_NoData.
--
-- before_… and after_… are the last sample before each time and the first one after it, at most 24 hours away: Good
-- ones; Uncertain ones, too, unless these are treated as Bad; with simple_bounds, any.
--
-- Parameters
--   since     timestamptz  the first time
--   until     timestamptz  before this moment
--   channels  text[]       names or patterns [NULL: all]
--   times     text         times with commas between them, in place of since and until [NULL: from since on every step]
--   step      interval     distance of the times [NULL: only since]
--   stepped   boolean      whether a value holds until the next one, else lines join them [NULL: unless analog]
--   simple_bounds           boolean  whether what follows a Bad sample has no value, else these are skipped [false]
--   treat_uncertain_as_bad  boolean  whether Uncertain samples count as Bad ones [true]
--   use_sloped_extrapolation  boolean  whether the last line goes on, else the last value holds [false]
-- Legal: step a 1000000th..100 years
-- Judges: numeric channels
-- Portions: channel
-- Shown first: channel, time, value, unit, quality
-- Cost: one pass over the samples from the first time to the last one, 0.5 s per million; times more than 24 hours
-- apart are looked up by themselves.
-- Example: plantlog ask interpolated --from 2026-03-09T10:00Z --to 2026-03-09T11:00Z --step '10 min'
WITH points AS (
    SELECT unnest(values_at(a.fields, epoch_us(since), epoch_us(until), epoch_us(coalesce(step, until - since)),
                            list_sort(list_distinct(list_transform(
                                string_split(times, ','), lambda moment: epoch_us(moment::TIMESTAMPTZ)))),
                            {'stepped': stepped, 'simple_bounds': simple_bounds,
                             'treat_uncertain_as_bad': treat_uncertain_as_bad, 'percent_data_bad': 100,
                             'percent_data_good': 100, 'use_sloped_extrapolation': use_sloped_extrapolation}),
                  recursive := true)
    FROM fields_of(channels, since - INTERVAL '24 hours', until + INTERVAL '24 hours', NULL) AS a
)
SELECT c.name AS channel, p.time, nullif(p.value, 'NaN'::DOUBLE) AS value,
       unit_at(p.channel_id, p.time, patterns := channels) AS unit, quality(p.status) AS quality, p.status,
       -- infinity: there is no such sample
       nullif(p.before_time, 'infinity') AS before_time,
       CASE WHEN isfinite(p.before_time) THEN p.before_value END AS before_value,
       CASE WHEN isfinite(p.before_time) THEN p.before_status END AS before_status,
       nullif(p.after_time, 'infinity') AS after_time,
       CASE WHEN isfinite(p.after_time) THEN p.after_value END AS after_value,
       CASE WHEN isfinite(p.after_time) THEN p.after_status END AS after_status
FROM points AS p
JOIN channels_like(channels) AS c ON c.channel_id = p.channel_id;

SELECT *
FROM portion_rows
ORDER BY channel, time;
