-- Records that a member of a redundant pair has no samples of any source from `since` to `until` (NULL: still).
CREATE OR REPLACE FUNCTION plant.member_away(
    installation uuid, of_member int, since timestamptz, until timestamptz
) RETURNS void
LANGUAGE sql
SET search_path = pg_catalog
AS $$
WITH own AS (
    SELECT array_agg(s.id ORDER BY s.id) AS sources, ARRAY[count(*)::int] AS n,
           (extract(epoch FROM clock_timestamp()) * 1000000)::int8 AS revision
    FROM plant.source AS s
    WHERE s.installation_id = installation AND s.retired_at IS NULL
)
SELECT plant.record_member_gaps(
    of_member, o.sources, array_fill(NULL::int, o.n), array_fill(since, o.n), array_fill(until, o.n),
    array_fill('away'::text, o.n), array_fill(''::text, o.n), array_fill(false, o.n), array_fill(o.revision, o.n))
FROM own AS o
WHERE o.sources IS NOT NULL
$$;
COMMENT ON FUNCTION plant.member_away IS 'Records that a member of a redundant pair is or was away.';
REVOKE EXECUTE ON FUNCTION plant.member_away FROM PUBLIC;
GRANT EXECUTE ON FUNCTION plant.member_away TO plant_ingest, plant_owner;
