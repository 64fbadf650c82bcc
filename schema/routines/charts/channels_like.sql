-- channels_like: the channels that match names or patterns
--
-- Parameters
--   patterns  text[]  names, or patterns with * for any text; NULL: every channel
-- If the setting plant.installation is an installation's id: only its channels.
-- Cost: one scan of plant.channel.
-- Example: SELECT * FROM plant.channels_like('{boilerhouse/*/pressure}');
CREATE OR REPLACE FUNCTION plant.channels_like(patterns text[])
RETURNS TABLE (
    channel_id int,
    name       text,
    kind       text,
    unit       text,
    low        float8, -- of the range
    high       float8,
    span       float8, -- high - low, NULL where there is no range
    unit_path  text,   -- the name without its last part: the unit of the plant
    quantity   text,   -- the name's last part
    ends       timestamptz -- when it, or its source, was retired; infinity: it was not
)
LANGUAGE sql STABLE
AS $$
SELECT c.id, c.name, c.kind, c.unit, c.range_lo, c.range_hi,
       CASE WHEN c.range_hi > c.range_lo THEN c.range_hi - c.range_lo END,
       plant.unit_of(c.name), regexp_replace(c.name, '^.*/', ''),
       coalesce(least(c.retired_at, s.retired_at), 'infinity')
FROM plant.channel AS c
JOIN plant.source AS s ON s.id = c.source_id
WHERE (patterns IS NULL
       OR c.name = ANY (patterns)
       -- Only * is special: names contain _, which LIKE would match with any character. Patterns are converted once.
       OR c.name LIKE ANY (ARRAY(SELECT replace(regexp_replace(p.pattern, '([\\_%])', '\\\1', 'g'), '*', '%')
                                 FROM unnest(patterns) AS p (pattern)
                                 WHERE p.pattern LIKE '%*%')))
  AND coalesce(s.installation_id = (SELECT nullif(current_setting('plant.installation', true), '')::uuid), true)
$$;
