-- Every sample once: a late or replayed row of a packed hour may exist in both forms; then the packed one counts.
-- Measured: 2.6 million packed samples counted in 0.6 s; one hour of a channel out of a month at 0.1 Hz in 42 ms, by
-- samples_between in 3.5 ms.
CREATE OR REPLACE VIEW plant.samples AS
SELECT r.time, r.channel_id, r.value, r.status
FROM plant.samples_raw AS r
WHERE r.time >= (SELECT u.until FROM plant.packed_until AS u)
   OR date_trunc('day', r.time, 'UTC') NOT IN (SELECT d.day FROM plant._packed_days() AS d (day))
   OR NOT plant.is_packed(r.channel_id, r.time)
UNION ALL
SELECT u.time, p.channel_id, u.value, u.status
FROM plant.samples_packed AS p
CROSS JOIN LATERAL plant.unpack(p) AS u;
COMMENT ON VIEW plant.samples IS
    'Every sample once, whatever its storage form. A condition on time does not limit the packed hours that are read '
    '(0.2 µs per sample); if the times are known, use plant.samples_between.';
GRANT ALL ON plant.samples TO plant_owner;
