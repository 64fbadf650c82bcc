-- Set the time from which a version of a channel is valid. A time that is already set stays, however often it is
-- reported. Versions that no collector used, because a later one replaced them first, have no time.
CREATE OR REPLACE FUNCTION plant.version_read(channel int, version int, since timestamptz) RETURNS void
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog
AS $$
DECLARE
    following timestamptz;
    begins    timestamptz;
BEGIN
    SELECT greatest(since, v.valid_from + INTERVAL '1 microsecond') INTO begins
    FROM plant.channel_version AS v
    WHERE v.channel_id = channel AND v.version < version_read.version AND v.valid_from IS NOT NULL
    ORDER BY v.version DESC
    LIMIT 1;
    SELECT min(v.valid_from) INTO following
    FROM plant.channel_version AS v
    WHERE v.channel_id = channel AND v.version > version_read.version;
    UPDATE plant.channel_version AS v SET valid_from = begins, valid_to = coalesce(following, 'infinity')
    WHERE v.channel_id = channel AND v.version = version_read.version AND v.valid_from IS NULL
      AND begins < coalesce(following, 'infinity');
    IF FOUND THEN
        UPDATE plant.channel_version AS v SET valid_to = begins
        WHERE v.channel_id = channel AND v.valid_from < begins AND v.valid_to > begins;
    END IF;
END
$$;
COMMENT ON FUNCTION plant.version_read IS
    'Record the time from which a collector uses a version of a channel. The writer calls it.';
REVOKE EXECUTE ON FUNCTION plant.version_read FROM PUBLIC;
GRANT EXECUTE ON FUNCTION plant.version_read TO plant_ingest;
