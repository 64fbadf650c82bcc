-- Status codes (OPC 10000-4, 7.39): the two highest bits are the severity.
CREATE OR REPLACE FUNCTION plant.quality(status int) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE STRICT
    RETURN CASE (status >> 30) & 3 WHEN 0 THEN 'good' WHEN 1 THEN 'uncertain' ELSE 'bad' END;
