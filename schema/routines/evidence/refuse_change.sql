-- Trigger: tables of seals and of applied configurations are append-only.
CREATE OR REPLACE FUNCTION plant.refuse_change() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    RAISE EXCEPTION '% on plant.% is refused: rows are only added', TG_OP, TG_TABLE_NAME
        USING ERRCODE = 'restrict_violation';
END
$$;
CREATE OR REPLACE TRIGGER only_added BEFORE UPDATE OR DELETE OR TRUNCATE ON plant.seal_key
    FOR EACH STATEMENT EXECUTE FUNCTION plant.refuse_change();
CREATE OR REPLACE TRIGGER only_added BEFORE UPDATE OR DELETE OR TRUNCATE ON plant.seal_document
    FOR EACH STATEMENT EXECUTE FUNCTION plant.refuse_change();
CREATE OR REPLACE TRIGGER only_added BEFORE UPDATE OR DELETE OR TRUNCATE ON plant.day_seal
    FOR EACH STATEMENT EXECUTE FUNCTION plant.refuse_change();
CREATE OR REPLACE TRIGGER only_added BEFORE UPDATE OR DELETE OR TRUNCATE ON plant.seal_digest
    FOR EACH STATEMENT EXECUTE FUNCTION plant.refuse_change();
CREATE OR REPLACE TRIGGER only_added BEFORE UPDATE OR DELETE OR TRUNCATE ON plant.config_file
    FOR EACH STATEMENT EXECUTE FUNCTION plant.refuse_change();
CREATE OR REPLACE TRIGGER only_added BEFORE UPDATE OR DELETE OR TRUNCATE ON plant.config_revision
    FOR EACH STATEMENT EXECUTE FUNCTION plant.refuse_change();
