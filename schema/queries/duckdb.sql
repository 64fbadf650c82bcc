-- What `plantlog sql` makes in DuckDB: settings and views. The tables stored_samples, event, samples_1m, samples_1h, gap, channel
-- and source are those of ops/sql/tables.py.

-- name: settings
-- Nothing is read but these tables, and nothing is written but temporary files.
SET TimeZone = 'UTC';
SET python_enable_replacements = false;
SET autoinstall_known_extensions = false;
SET autoload_known_extensions = false;
SET enable_external_access = false;

-- name: views
CREATE VIEW samples AS
SELECT s.time, s.channel_id, s.value, s.status FROM stored_samples AS s;

-- The start of the minute, hour or day (UTC). date_trunc looks at the time zone, which takes ten times as long.
CREATE MACRO minute_of(time) AS make_timestamptz(epoch_us(time) // 60000000 * 60000000);
CREATE MACRO hour_of(time) AS make_timestamptz(epoch_us(time) // 3600000000 * 3600000000);
CREATE MACRO day_of(time) AS make_timestamptz(epoch_us(time) // 86400000000 * 86400000000);

CREATE MACRO quality(status) AS CASE (status >> 30) & 3 WHEN 0 THEN 'good' WHEN 1 THEN 'uncertain' ELSE 'bad' END;
CREATE MACRO status_hex(status) AS '0x' || upper(lpad(to_hex(status & 4294967295), 8, '0'));

CREATE VIEW samples_named AS
SELECT s.time, s.name, s.value, s.unit, quality(s.status) AS quality, s.status, s.channel_id
FROM stored_samples AS s
WHERE s.name IS NOT NULL;

-- name: lock
SET lock_configuration = true;
