-- Priorities in their order, for ORDER BY.
CREATE OR REPLACE FUNCTION plant.priority_rank(priority text) RETURNS int
    LANGUAGE sql IMMUTABLE PARALLEL SAFE STRICT
    RETURN array_position(ARRAY['critical', 'high', 'medium', 'low'], priority);
COMMENT ON FUNCTION plant.priority_rank(text) IS 'From 1 (critical) to 4 (low).';
