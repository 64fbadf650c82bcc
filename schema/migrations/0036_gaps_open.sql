-- Gaps of the minutes that a writer makes. A gap begins nearly always in a minute that the writer holds open (0034): it
-- takes the gap for what it is, the end of what is known, and nothing is made anew because of it.
--
-- How they stay exact. A writer says in its transaction which minutes it holds open: plant.held_open. Rows of rollup_dirty
-- that new gaps leave in these say since when, as those of samples do, and go when the writer closes the minute; what it
-- can't vouch for becomes dirty then, and so does what is carried on from there. Gaps that others write, that turn out to
-- be none, are backfilled, or begin in minutes that are closed, make minutes dirty as before. Whether the writer knew of
-- those is checked when it closes a later minute: between a channel's newest row and that minute a gap may have begun.

CREATE OR REPLACE FUNCTION plant.gaps_are_dirty() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER -- whoever writes gaps
SET search_path = pg_catalog
AS $$
DECLARE
    held CONSTANT timestamptz[] := coalesce(nullif(current_setting('plant.held_open', true), ''), '{}')::timestamptz[];
    minutes  timestamptz[];
    sources  int[];
    channels int[];
BEGIN
    IF TG_OP = 'INSERT' THEN
        SELECT array_agg(plant.minute_of(n.from_time)), array_agg(n.source_id), array_agg(n.channel_id)
        INTO minutes, sources, channels
        FROM fresh AS n
        WHERE n.to_time IS DISTINCT FROM n.from_time AND n.backfilled_at IS NULL;
    ELSIF TG_OP = 'UPDATE' THEN
        SELECT array_agg(plant.minute_of(n.from_time)), array_agg(n.source_id), array_agg(n.channel_id)
        INTO minutes, sources, channels
        FROM fresh AS n
        JOIN former AS f ON f.id = n.id
        WHERE (n.to_time IS DISTINCT FROM n.from_time AND n.backfilled_at IS NULL)
              <> (f.to_time IS DISTINCT FROM f.from_time AND f.backfilled_at IS NULL);
    ELSE
        SELECT array_agg(plant.minute_of(f.from_time)), array_agg(f.source_id), array_agg(f.channel_id)
        INTO minutes, sources, channels
        FROM former AS f
        WHERE f.to_time IS DISTINCT FROM f.from_time AND f.backfilled_at IS NULL;
    END IF;
    INSERT INTO plant.rollup_dirty (from_time, to_time, channels, onward, open_since)
    SELECT g.minute, g.minute + INTERVAL '1 minute', array_agg(DISTINCT c.id), true,
           CASE WHEN TG_OP = 'INSERT' AND g.minute = ANY (held) THEN clock_timestamp() END
    FROM unnest(minutes, sources, channels) AS g (minute, source_id, channel_id)
    CROSS JOIN LATERAL (
        SELECT g.channel_id AS id WHERE g.channel_id IS NOT NULL
        UNION ALL
        SELECT c.id FROM plant.channel AS c WHERE g.channel_id IS NULL AND c.source_id = g.source_id
    ) AS c
    GROUP BY g.minute;
    RETURN NULL;
END
$$;

-- Whether a recorded gap of the channel begins between these times: one of its own, or of its source.
CREATE FUNCTION plant.gap_begins_within(channel int, "from" timestamptz, "to" timestamptz) RETURNS boolean
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT EXISTS (SELECT FROM plant.gap AS g
                   WHERE g.source_id = c.source_id AND g.channel_id = c.id AND g.from_time >= "from" AND g.from_time < "to"
                     AND g.to_time IS DISTINCT FROM g.from_time AND g.backfilled_at IS NULL)
        OR EXISTS (SELECT FROM plant.gap AS g
                   WHERE g.source_id = c.source_id AND g.channel_id IS NULL AND g.from_time >= "from" AND g.from_time < "to"
                     AND g.to_time IS DISTINCT FROM g.from_time AND g.backfilled_at IS NULL)
    FROM plant.channel AS c
    WHERE c.id = channel;
END;

-- Which of the channels ids have another newest minute than the writer thinks, which would close the minute now: what was
-- carried into it were samples at times (µs since 1970) with values, or nothing (NULL: Bad, NaN, a gap).
CREATE OR REPLACE FUNCTION plant.not_following(ids int[], times int8[], "values" float8[], minute timestamptz) RETURNS int[]
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog
SET plan_cache_mode = force_custom_plan
SET jit = off
SET enable_seqscan = off
SET enable_bitmapscan = off
SET max_parallel_workers_per_gather = 0
AS $$
BEGIN
    RETURN ARRAY(
        SELECT c.id
        FROM unnest(ids, times, "values") AS c (id, time, value)
        LEFT JOIN LATERAL (
            SELECT r.bucket, r.last_time, r.last, r.holds
            FROM plant.rollup_1m AS r
            WHERE r.channel_id = c.id AND r.bucket >= plant.later(minute, -plant.hold_limit())
            ORDER BY r.bucket DESC LIMIT 1
        ) AS r ON true
        CROSS JOIN LATERAL (SELECT plant.later(r.bucket, INTERVAL '1 minute') AS ended) AS e
        WHERE NOT coalesce(r.bucket < minute
                           AND CASE WHEN c.value IS NULL
                                    THEN NOT r.holds OR (e.ended < minute AND plant.gap_begins_within(c.id, e.ended, minute))
                                    ELSE r.holds AND r.last = c.value
                                         AND r.last_time = TIMESTAMPTZ 'epoch' + c.time * INTERVAL '1 microsecond'
                                         AND (e.ended >= minute OR NOT plant.gap_begins_within(c.id, e.ended, minute)) END,
                           false));
END
$$;

-- Which of the channels ids have minutes from a time on.
CREATE FUNCTION plant.having_minutes(ids int[], "from" timestamptz) RETURNS int[]
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog
SET plan_cache_mode = force_custom_plan
SET jit = off
SET enable_seqscan = off
SET enable_bitmapscan = off
SET max_parallel_workers_per_gather = 0
AS $$
BEGIN
    RETURN ARRAY(
        SELECT c.id
        FROM unnest(ids) AS c (id)
        CROSS JOIN LATERAL (SELECT FROM plant.rollup_1m AS r WHERE r.channel_id = c.id AND r.bucket >= "from" LIMIT 1) AS r);
END
$$;

ALTER TABLE plant.rollup_closed ADD COLUMN minutes bigint NOT NULL DEFAULT 0, ADD COLUMN rows bigint NOT NULL DEFAULT 0;
COMMENT ON COLUMN plant.rollup_closed.minutes IS 'How many minutes writers have closed with rows of their own.';
COMMENT ON COLUMN plant.rollup_closed.rows IS 'Rows of rollup_1m that they wrote.';
