-- Views of an archive for Spark SQL: PySpark, Databricks, and what else reads Spark's SQL. In place of /srv/archive,
-- the archive's location, such as s3a://BUCKET/PATH. docs/archive.md describes the columns.
--
-- Rows are those of the files that the manifests name, whatever else lies there: files of a day that is being written
-- again, or of a writer that was killed. Seals are not verified: `plantlog evidence verify --plants` does that.
-- A condition on installation and day is what makes a query fast.

-- Doubles of the archive are encoded as BYTE_STREAM_SPLIT, which Spark's vectorized reader does not know.
SET spark.sql.parquet.enableVectorizedReader = false;
SET spark.sql.session.timeZone = UTC;

CREATE OR REPLACE TEMPORARY VIEW manifest
USING json OPTIONS (path '/srv/archive/manifests', multiLine true, recursiveFileLookup true, pathGlobFilter '*.json');

-- The files of all days, by their paths from the archive's root.
CREATE OR REPLACE TEMPORARY VIEW archived_file AS
SELECT m.plant, m.installation, m.file.path
FROM (SELECT plant, installation, explode(files) AS file FROM manifest) AS m;

CREATE OR REPLACE TEMPORARY VIEW samples AS
SELECT f.plant, s.installation, s.day, s.channel_id, s.time, s.status,
       coalesce(s.unscaled, CASE WHEN s.single THEN CAST(CAST(s.scaled / s.divisor AS FLOAT) AS DOUBLE)
                                 ELSE s.scaled / s.divisor END) AS value
FROM parquet.`/srv/archive/samples` AS s
JOIN archived_file AS f
  ON f.path = regexp_extract(url_decode(s._metadata.file_path), '/(samples/installation=.*)$', 1);

CREATE OR REPLACE TEMPORARY VIEW channel AS
SELECT f.plant, c.*
FROM parquet.`/srv/archive/channels` AS c
JOIN archived_file AS f
  ON f.path = regexp_extract(url_decode(c._metadata.file_path), '/(channels/installation=.*)$', 1);

CREATE OR REPLACE TEMPORARY VIEW samples_named AS
SELECT s.plant, s.installation, s.day, s.channel_id, c.name, c.unit, s.time, s.value, s.status
FROM samples AS s
JOIN channel AS c ON c.installation = s.installation AND c.day = s.day AND c.channel_id = s.channel_id
                 AND s.time >= c.valid_from AND s.time < c.valid_to;

CREATE OR REPLACE TEMPORARY VIEW event AS
SELECT f.plant, e.*
FROM parquet.`/srv/archive/events` AS e
JOIN archived_file AS f
  ON f.path = regexp_extract(url_decode(e._metadata.file_path), '/(events/installation=.*)$', 1);

CREATE OR REPLACE TEMPORARY VIEW gap AS
SELECT f.plant, g.*
FROM parquet.`/srv/archive/gaps` AS g
JOIN archived_file AS f
  ON f.path = regexp_extract(url_decode(g._metadata.file_path), '/(gaps/installation=.*)$', 1);
