-- The retention class of each channel, as in plant.retention_class: two installations may both have a class default.
CREATE OR REPLACE VIEW plant.channel_class AS
SELECT c.id AS channel_id, concat(i.class_prefix, c.retention) AS class
FROM plant.channel AS c
JOIN plant.source AS s ON s.id = c.source_id
LEFT JOIN plant.installation AS i ON i.id = s.installation_id;
COMMENT ON VIEW plant.channel_class IS 'Retention class of each channel: a row of plant.retention_class.';
GRANT ALL ON plant.channel_class TO plant_owner;
