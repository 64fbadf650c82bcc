-- A status code as OPC UA writes it: 0x80050000.
CREATE OR REPLACE FUNCTION plant.status_hex(status int) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE STRICT
    RETURN '0x' || upper(lpad(to_hex(status), 8, '0'));
