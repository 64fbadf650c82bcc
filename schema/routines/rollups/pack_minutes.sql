-- Pack a channel's minutes of a day.
CREATE OR REPLACE FUNCTION plant.pack_minutes(channel int, day timestamptz) RETURNS plant.rollup_1m_packed
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog
SET plan_cache_mode = force_custom_plan
AS $$
DECLARE
    p     plant.rollup_1m_packed;
    r     record;
    back  plant.rollup_1m[];
BEGIN
    p.day := day;
    p.channel_id := channel;
    WITH own AS MATERIALIZED (
        SELECT m.*, (date_part('epoch', m.bucket - day) / 60)::int AS minute,
               round(date_part('epoch', m.first_time - m.bucket) * 1e6)::int AS first_at,
               round(date_part('epoch', m.last_time - m.bucket) * 1e6)::int AS last_at
        FROM plant.rollup_1m AS m
        WHERE m.channel_id = channel AND m.bucket >= day AND m.bucket < day + INTERVAL '24 hours'
    ),
    -- Placeholder for missing values: any value that does not widen the range.
    filled AS (
        SELECT o.*, coalesce(o.min, w.low, 0) AS low, coalesce(o.max, w.low, 0) AS high,
               coalesce(o.first, w.low, 0) AS opening, coalesce(o.last, w.low, 0) AS closing
        FROM own AS o
        CROSS JOIN (SELECT min(o.min) AS low FROM own AS o) AS w
    )
    SELECT count(*)::int AS rows, array_agg(f.minute ORDER BY f.minute) AS minutes, array_agg(f.n ORDER BY f.minute) AS n,
           array_agg(f.n_good ORDER BY f.minute) AS n_good, array_agg(f.known::int ORDER BY f.minute) AS known,
           array_agg(f.first_at ORDER BY f.minute) AS first_at, array_agg(f.last_at ORDER BY f.minute) AS last_at,
           array_agg(f.holds::int ORDER BY f.minute) AS holds, array_agg(f.low ORDER BY f.minute) AS min,
           array_agg(f.high ORDER BY f.minute) AS max, array_agg(f.sum ORDER BY f.minute) AS sum,
           array_agg(f.area ORDER BY f.minute) AS area, array_agg(f.opening ORDER BY f.minute) AS first,
           array_agg(f.closing ORDER BY f.minute) AS last,
           array_agg(ROW(f.channel_id, f.n, f.bucket, f.min, f.max, f.sum, f.area, f.first, f.last, f.known,
                         f.first_time, f.last_time, f.n_good, f.holds)::plant.rollup_1m ORDER BY f.minute) AS own
    INTO r
    FROM filled AS f;
    IF r.rows = 0 THEN
        RETURN NULL;
    END IF;
    p.rows := r.rows;
    p.minute_ := CASE WHEN r.rows < 1440 THEN r.minutes END;
    p.n := r.n[1];
    p.n_ := nullif(r.n, array_fill(r.n[1], ARRAY[r.rows]));
    p.n_good := r.n_good[1];
    p.n_good_ := nullif(r.n_good, array_fill(r.n_good[1], ARRAY[r.rows]));
    p.known := r.known[1];
    p.known_ := nullif(r.known, array_fill(r.known[1], ARRAY[r.rows]));
    p.holds := r.holds[1];
    p.holds_ := nullif(r.holds, array_fill(r.holds[1], ARRAY[r.rows]));
    -- A constant cannot represent a column with some NULLs.
    IF r.first_at = array_fill(r.first_at[1], ARRAY[r.rows]) THEN
        p.first_at := r.first_at[1];
    ELSE
        p.first_at_ := r.first_at;
    END IF;
    IF r.last_at = array_fill(r.last_at[1], ARRAY[r.rows]) THEN
        p.last_at := r.last_at[1];
    ELSE
        p.last_at_ := r.last_at;
    END IF;
    p.min := plant.pack_numbers(r.min);
    p.max := plant.pack_numbers(r.max);
    p.sum := plant.pack_numbers(r.sum);
    p.area := plant.pack_numbers(r.area);
    p.first := plant.pack_numbers(r.first);
    p.last := plant.pack_numbers(r.last);
    back := ARRAY(SELECT u FROM plant.unpack_minutes(p, '-infinity', 'infinity') AS u);
    IF (SELECT one FROM (SELECT back) AS one) *<> (SELECT one FROM (SELECT r.own) AS one) THEN -- to the bit
        RAISE EXCEPTION 'rollups of channel % on the day from % do not come back from the packed form', channel, day;
    END IF;
    RETURN p;
END
$$;
