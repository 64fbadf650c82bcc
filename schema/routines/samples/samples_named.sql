-- For a channel that never changed, no time has to be compared: CASE halves the cost.
CREATE OR REPLACE VIEW plant.samples_named AS
SELECT s.time, v.name, s.value, v.unit, plant.quality(s.status) AS quality, s.status, s.channel_id
FROM plant.samples AS s
JOIN plant.channel_version AS v
    ON v.channel_id = s.channel_id
    AND CASE WHEN v.always THEN true ELSE s.time >= v.valid_from AND s.time < v.valid_to END;
COMMENT ON VIEW plant.samples_named IS
    'Samples with the name and unit that their channel had at the time. To select by the current name: WHERE '
    'channel_id = (SELECT c.id FROM channel AS c WHERE c.name = …).';
GRANT ALL ON plant.samples_named TO plant_owner;
