-- The ranges of time of which plant.archived_samples has all samples of a channel.
CREATE OR REPLACE FUNCTION plant.archived_ranges(channel int) RETURNS tstzmultirange
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT coalesce(nullif(split_part(current_setting('plant.archived_' || channel, true), ';', 1),
                           '')::tstzmultirange, '{}');
END;
