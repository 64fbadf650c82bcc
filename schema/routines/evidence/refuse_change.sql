-- Trigger: tables of seals are append-only.
CREATE OR REPLACE FUNCTION plant.refuse_change() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    RAISE EXCEPTION '% on plant.% is refused: seals are only added to', TG_OP, TG_TABLE_NAME
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
