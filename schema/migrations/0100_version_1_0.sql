-- From the last versions before 1.0 (36 to 39) to 1.0. Their tables are those of 1.0. Routines and views stand in routines/
-- from here on, and are made anew behind this; what keeps track of them has another name.
UPDATE plant.setting SET key = 'routine/' || split_part(key, '/', 2) WHERE key LIKE 'edition/%' OR key LIKE 'forensics/%';

-- Version 39 had these no more.
DROP FUNCTION IF EXISTS plant.channels_in_raw, plant.channels_in_minutes;

-- Since version 37 it is not all rows.
COMMENT ON COLUMN plant.rollup_closed.rows IS 'Rows of rollup_1m that they wrote and that need not be made anew.';
