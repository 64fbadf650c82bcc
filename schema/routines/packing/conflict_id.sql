-- A positive 63-bit id computed from the content of a conflict event, so that packing the same replay again is a no-op.
CREATE OR REPLACE FUNCTION plant.conflict_id("time" timestamptz, channel_id int, detail jsonb) RETURNS bigint
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN hashtextextended(concat_ws(' ', date_part('epoch', "time")::text, channel_id::text, detail::text), 6)
           & 9223372036854775807;
