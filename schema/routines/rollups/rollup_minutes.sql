-- All minutes, from rows and packed days. A condition on bucket does not limit the packed days that are read: see
-- minutes_between.
CREATE OR REPLACE VIEW plant.rollup_minutes AS
SELECT r.* FROM plant.rollup_1m AS r
UNION ALL
SELECT u.* FROM plant.rollup_1m_packed AS p CROSS JOIN LATERAL plant.unpack_minutes(p, '-infinity', 'infinity') AS u;
