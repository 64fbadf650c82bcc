-- One call per day, so that a query about one day reads the samples of that day only.
CREATE OR REPLACE VIEW plant.coverage AS
WITH
-- From the first chunk, gap or channel on; finding the first chunk reads no samples.
first AS (
    SELECT (least(plant.first_sample_day(), (SELECT min(g.from_time) FROM plant.gap AS g),
                  (SELECT min(c.configured_at) FROM plant.channel AS c)) AT TIME ZONE 'UTC')::date AS day
),
days AS (
    SELECT f.day + n.n AS day
    FROM first AS f
    CROSS JOIN LATERAL generate_series(0, (now() AT TIME ZONE 'UTC')::date - f.day) AS n (n)
)
SELECT d.day, o.*
FROM days AS d
CROSS JOIN LATERAL plant.coverage_of(d.day) AS o;
COMMENT ON VIEW plant.coverage IS
    'By channel and day (UTC): samples expected, received (got) and missing (NULL if the channel reports changes '
    'only), seconds missing and backfilled, and samples in quarantine. Filter by day.';
GRANT SELECT ON plant.coverage TO plant_owner;
