-- held_buckets with the columns of samples_1m.
CREATE OR REPLACE FUNCTION plant.held_means(width interval, "from" timestamptz, "to" timestamptz)
RETURNS TABLE (channel_id int, bucket timestamptz, n int, n_good int, min float8, max float8, avg float8, twa float8,
               seconds float8, first float8, last float8, first_time timestamptz, last_time timestamptz, holds boolean)
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT h.channel_id, h.bucket, 0, 0, NULL::float8, NULL::float8, NULL::float8,
           h.value, h.known / 1e6::float8, NULL::float8, NULL::float8,
           NULL::timestamptz, NULL::timestamptz, h.holds
    FROM plant.held_buckets(width, "from", "to") AS h;
END;
