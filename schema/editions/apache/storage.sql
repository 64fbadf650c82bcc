-- What is stored in which form, what is there now, from the catalog alone.
CREATE OR REPLACE FUNCTION plant.storage()
RETURNS TABLE (relation text, form text, day timestamptz, rows bigint, bytes bigint)
LANGUAGE sql STABLE
SET search_path = pg_catalog
SET jit = off
AS $$
SELECT s.relation, CASE s.relation WHEN 'samples_packed' THEN 'packed' ELSE 'rows' END, s.day, round(s.rows)::bigint,
       pg_total_relation_size(s.stored)
FROM plant._stored() AS s
ORDER BY s.relation, s.day
$$;
COMMENT ON FUNCTION plant.storage IS 'Bytes (indexes and TOAST included) and about how many rows (packed, columnstore: samples; NULL: never analyzed) each relation takes, in which form: by the time its chunk begins (samples: a day), or NULL. Reads the catalog only.';
