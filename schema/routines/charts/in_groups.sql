-- in_groups: a text whose digests are in groups of 16 digits
--
-- Not a question; the dashboards use it: Grafana breaks lines at spaces and hyphens alone, and cuts the rest of a word
-- that is wider than its column.
--
-- Parameters
--   text  text
-- Cost: none.
-- Example: SELECT plant.in_groups('SHA-256 ' || encode(sha256('a'), 'hex'));
CREATE OR REPLACE FUNCTION plant.in_groups(text text) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE STRICT
    RETURN regexp_replace(text, '\m([0-9a-f]{16})([0-9a-f]{16})([0-9a-f]{16})([0-9a-f]{16})\M', '\1 \2 \3 \4', 'g');
