-- oscillation: which channels swing, with which period, since when, and who swings with whom
--
-- A channel swings if the zero crossings of its autocorrelation are regular (Thornhill, Huang and Zhang, 2003):
-- regularity is the mean of half periods in three of their standard deviations, 1 and more is regular. The strongest
-- oscillation of a channel is found. The periods that can be found are printed below the answer; a smaller step has
-- shorter ones, a longer interval longer ones. The interval has to have 200 means. amplitude is half of what it swings
-- by.
-- since_when is where it begins to swing, be it less than later, as far as noise shows (NULL: from the start).
-- amplitude_before is that of a reference, if the channel swings there with a period that differs by less than a tenth:
-- a machine that switches on and off does. Such rows come last, unless the amplitude is half as large again.
--
-- Channels whose periods differ by less than 5 % from the next one swing together: they have the same number in
-- together, and companions others beside them. place is the order in which these began (those from the start are all
-- the first). lag_seconds is how long the maximum of the channel comes after that of the one named first: positive:
-- later, negative: earlier, by up to half a period. stiction_index (He, Wang, Pottmann and Qin, 2007) is above 0.6
-- where half periods are triangles, as those of a controller's output whose valve sticks; below 0.4 they are sines, as
-- of a loop that is badly tuned, or is shaken from outside.
--
-- Parameters
--   since             timestamptz  from this moment on
--   until             timestamptz  before this moment
--   channels          text[]       names or patterns [NULL: all analog ones]
--   step              interval     length of a mean [NULL: a 500th of the interval, at least the sampling interval]
--   least_regularity  float8       lowest regularity to list [1]
--   reference         reference    FROM..TO, or a time before [NULL: as long as the interval]
-- Legal: step a 1000000th..interval, least_regularity 0..
-- Reads from: reference
-- Periods: 5 steps to a 10th of the interval
-- Portions: channel
-- Cost: one pass over the samples of both intervals, then 0.2 ms per channel and 500 means.
-- Example: plantlog ask oscillation --from 2026-03-09T10:00Z --to 2026-03-09T11:00Z
WITH
analog AS (
    FROM fields_of(channels, least(since, reference[1]), greatest(until, reference[2]), ['analog'])
),
oscillations AS (
    SELECT unnest(oscillations_of(a.fields, epoch_us(since), epoch_us(until), epoch_us(step), least_regularity),
                  recursive := true)
    FROM analog AS a
),
before AS (
    SELECT unnest(oscillations_of(a.fields, epoch_us(reference[1]), epoch_us(reference[2]), epoch_us(step),
                                  least_regularity), recursive := true)
    FROM analog AS a
    WHERE reference[2] - reference[1] >= 200 * step -- as the interval
)
SELECT c.name AS channel, o.period AS period_seconds, o.amplitude, b.amplitude AS amplitude_before,
       unit_at(o.channel_id, o.top_time, patterns := channels) AS unit, o.regularity,
       CASE WHEN o.from_time >= since THEN o.from_time END AS since_when, o.top_time,
       CASE WHEN NOT isnan(o.stiction) THEN o.stiction END AS stiction_index, verdict_text(o.verdict) AS verdict
FROM channels_like(channels) AS c
LEFT JOIN oscillations AS o ON o.channel_id = c.channel_id
LEFT JOIN before AS b ON b.channel_id = o.channel_id AND b.verdict = 0 AND abs(ln(b.period / o.period)) < 0.1
WHERE c.kind = 'analog';

WITH
spaced AS (
    SELECT p.*, p.period_seconds > 1.05 * lag(p.period_seconds) OVER (ORDER BY p.period_seconds, p.channel) AS differs
    FROM portion_rows AS p
    WHERE p.verdict IS NULL
),
grouped AS (
    SELECT s.*, count(*) FILTER (WHERE s.differs) OVER (ORDER BY s.period_seconds, s.channel) AS number
    FROM spaced AS s
),
placed AS (
    SELECT g.*, count(*) OVER (PARTITION BY g.number) - 1 AS companions,
           bool_and(coalesce(g.amplitude < 1.5 * g.amplitude_before, false)) OVER (PARTITION BY g.number) AS is_usual,
           rank() OVER (PARTITION BY g.number ORDER BY g.since_when NULLS FIRST) AS place,
           first_value(g.top_time) OVER (PARTITION BY g.number
                                         ORDER BY g.since_when NULLS FIRST, round(g.regularity, 6) DESC, g.channel)
               AS first_top
    FROM grouped AS g
),
late AS (
    SELECT p.*, (epoch_us(p.top_time) - epoch_us(p.first_top)) / 1e6 / p.period_seconds AS periods FROM placed AS p
)
SELECT l.channel, l.period_seconds, l.amplitude, l.amplitude_before, l.unit, l.since_when, l.regularity,
       dense_rank() OVER (ORDER BY l.is_usual, l.companions DESC, l.number) AS together, l.companions, l.place,
       (l.periods - round(l.periods)) * l.period_seconds AS lag_seconds, l.stiction_index
FROM late AS l
ORDER BY together, place, round(regularity, 6) DESC, channel;
