-- All channels that may have samples, and more_channels.
CREATE OR REPLACE FUNCTION plant.rollup_channels(more_channels int[]) RETURNS int[]
    LANGUAGE sql STABLE
    RETURN ARRAY(SELECT c.id FROM plant.channel AS c WHERE c.kind <> 'text'
                 UNION SELECT o.id FROM unnest(more_channels) AS o (id)
                 ORDER BY 1);
