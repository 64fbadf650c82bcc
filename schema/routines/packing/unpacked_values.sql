-- Values as unpack returns them.
CREATE OR REPLACE FUNCTION plant.unpacked_values(p plant.samples_packed) RETURNS SETOF float8
    LANGUAGE sql STABLE PARALLEL SAFE
    BEGIN ATOMIC SELECT u.value FROM plant.unpack(p) AS u; END;
