-- Whether a day between two times is sealed by an installation that archives, and is not in its archive as it is: it is not
-- there by its newest seal, or samples came after some were dropped, or came and were not looked at yet.
CREATE OR REPLACE FUNCTION plant.lacks_archive(from_time timestamptz, to_time timestamptz) RETURNS boolean
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog
SET timezone = 'UTC'
AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM plant.installation AS i WHERE i.archive_from IS NOT NULL) THEN
        RETURN false;
    END IF;
    RETURN EXISTS (
        SELECT
        FROM plant.installation AS i
        CROSS JOIN generate_series(date_trunc('day', lacks_archive.from_time), lacks_archive.to_time - INTERVAL '1 microsecond',
                                   INTERVAL '1 day') AS d (midnight)
        CROSS JOIN LATERAL (SELECT s.revision FROM plant.day_seal AS s
                            WHERE s.day = d.midnight::date AND s.chain = i.number
                            ORDER BY s.revision DESC LIMIT 1) AS s
        LEFT JOIN plant.archived_day AS a ON a.installation = i.number AND a.day = d.midnight::date AND a.revision = s.revision
        LEFT JOIN plant.seal_evidence AS v ON v.chain = i.number
        LEFT JOIN plant.archive_evidence AS e ON e.installation = i.number
        WHERE d.midnight >= i.archive_from
          AND (a.day IS NULL OR a.late
               OR EXISTS (SELECT FROM plant.ingest_batch AS b
                          -- A batch has the time before its commit, so the sealer looks back a little (partial_digests.py).
                          WHERE b.written_at >= greatest(a.read_from, least(v.until, e.until)) - INTERVAL '5 minutes'
                            AND b.kind = 'samples'
                            AND b.first_time < d.midnight + INTERVAL '1 day' AND b.last_time >= d.midnight)));
END
$$;
