-- Pack one hour of one channel. Times are ascending and unique.
CREATE OR REPLACE FUNCTION plant.pack(channel_id int, hour timestamptz, times timestamptz[], "values" float8[], statuses int[])
RETURNS plant.samples_packed
LANGUAGE plpgsql STABLE PARALLEL SAFE
AS $$
DECLARE
    p plant.samples_packed;
BEGIN
    p.channel_id := channel_id;
    p.hour := hour;
    p.n := cardinality(times);
    p.status := statuses[1];
    IF statuses <> array_fill(p.status, ARRAY[p.n]) THEN
        p.statuses := statuses;
    END IF;
    p := plant.pack_times(p, times);
    p := plant.pack_values(p, "values");
    IF ARRAY(SELECT u.time FROM plant.unpack(p) AS u) IS DISTINCT FROM times THEN
        RAISE EXCEPTION 'times of channel % in the hour from % do not come back from the packed form', channel_id, hour;
    END IF;
    RETURN p;
END
$$;
