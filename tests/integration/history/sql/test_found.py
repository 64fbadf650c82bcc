"""Functions computed while samples are read, also by other processes, equal those of the whole samples."""

from __future__ import annotations

from datetime import date

import pytest

from core.timestamps import begin
from history.archive.location import Location
from history.archive.manifest import DayFolder, Manifest, read_manifest
from tests.integration.history.archive_maintenance import Maintained
from tests.integration.history.sealed_plant import DAY
from tests.integration.history.sql.asking import NEXT, archived_and_dropped, rows_of, rows_of_each
from tests.sample_tables import HOUR_US, bits

_SINCE, _UNTIL = f"TIMESTAMPTZ '{begin(DAY, 5)}' + INTERVAL '30 s'", f"TIMESTAMPTZ '{begin(NEXT, 24)}'"
_SPANS = f"""
SELECT channel_id, sum(samples), sum(not_bad), min(first_time), max(last_time)
FROM intervals_of(NULL, {_SINCE}, {_UNTIL}, INTERVAL '2 s')
GROUP BY ALL ORDER BY ALL"""
_COUNTS = f"""
SELECT channel_id, count(*), count(*) FILTER (status >= 0), min(time), max(time)
FROM samples WHERE time >= {_SINCE} AND time < {_UNTIL} GROUP BY ALL ORDER BY ALL"""
_PAUSES = f"""
FROM (SELECT channel_id, first_time AS time, epoch_us(first_time) - max(epoch_us(last_time)) OVER before AS pause
      FROM intervals_of(NULL, {_SINCE}, {_UNTIL}, INTERVAL '2 s')
      WINDOW before AS (PARTITION BY channel_id ORDER BY first_time ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING))
WHERE pause >= 2e6 ORDER BY ALL"""
_LAGS = f"""
FROM (SELECT channel_id, time, epoch_us(time) - epoch_us(lag(time) OVER own) AS pause
      FROM samples WHERE time >= {_SINCE} AND time < {_UNTIL}
      WINDOW own AS (PARTITION BY channel_id ORDER BY time))
WHERE pause >= 2e6 ORDER BY ALL"""
_MEANS = f"""
SELECT channel_id, time, round(value, 6)
FROM (SELECT unnest(resampled_means(a.fields, epoch_us({_SINCE}), epoch_us({_SINCE}), epoch_us({_UNTIL}), 420000000),
                    recursive := true)
      FROM (SELECT list(fields) AS fields FROM channels_with_gaps(NULL, {_SINCE}, {_UNTIL})) AS a)
ORDER BY ALL"""
_GROUPS = f"""
SELECT DISTINCT ON (n.channel_id, g.time) n.channel_id, g.time,
       round(coalesce(CASE WHEN n.bucket = g.time THEN n.mean END, n.last), 6)
FROM (SELECT g.channel_id, date_bin(INTERVAL '7 min', g.time, {_SINCE}) AS bucket, avg(g.value) AS mean,
             arg_max(g.value, g.time) AS last
      FROM good_samples(NULL, {_SINCE}, {_UNTIL}) AS g GROUP BY ALL) AS n
JOIN (SELECT unnest(generate_series({_SINCE}, {_UNTIL} - INTERVAL '1 us', INTERVAL '7 min')) AS time) AS g
  ON g.time >= n.bucket
JOIN channels_like(NULL) AS c ON c.channel_id = n.channel_id
                             AND (g.time < least({_UNTIL}, now(), c.ends) OR g.time = n.bucket)
WHERE n.bucket = g.time OR NOT EXISTS (FROM gap_channel AS m
    WHERE m.channel_id = n.channel_id AND m.backfilled_at IS NULL AND m.from_time <= g.time
      AND coalesce(m.to_time, 'infinity'::TIMESTAMPTZ) >= g.time + INTERVAL '7 min')
ORDER BY n.channel_id, g.time, n.bucket DESC"""
_STEPS = f"""
SELECT channel_id, time, old_value, value
FROM steps_of(NULL, [{_SINCE} - INTERVAL '1 h', {_SINCE}], {_SINCE}, {_UNTIL}, 1000000, INTERVAL '1 day')
WHERE is_step AND time > {_SINCE} ORDER BY ALL"""
_CHANGES = f"""
SELECT channel_id, time, old_value, value
FROM (SELECT *, lag(value) OVER own AS old_value, lag(status) OVER own AS old_status
      FROM samples WHERE time >= {_SINCE} AND time < {_UNTIL}
      WINDOW own AS (PARTITION BY channel_id ORDER BY time))
WHERE status >= 0 AND old_status >= 0 AND value <> old_value AND abs(value) < 1e50 AND abs(old_value) < 1e50
ORDER BY ALL"""
_RUNS = f"""
SELECT channel_id, value, from_time, next_time FROM runs_of(NULL, {_SINCE}, {_UNTIL}, INTERVAL '0 s') ORDER BY ALL"""
_HELD = f"""
SELECT channel_id, value, time, lead(time) OVER (PARTITION BY channel_id ORDER BY time)
FROM (SELECT *, lag(value) OVER (PARTITION BY channel_id ORDER BY time) AS old_value
      FROM good_samples(NULL, {_SINCE}, {_UNTIL}))
WHERE value IS DISTINCT FROM old_value ORDER BY ALL"""


@pytest.mark.slow
@pytest.mark.parametrize("at_a_time", [1_000_000, 40])
async def test_what_is_found_while_reading_is_that_of_the_samples(
    plant: Maintained, monkeypatch: pytest.MonkeyPatch, at_a_time: int
) -> None:
    """Also by other processes, and of a channel in parts."""
    monkeypatch.setattr("history.sql.sources.portion._AT_A_TIME", at_a_time)

    one = "SELECT * FROM ({}) WHERE channel_id IN channel_ids(['*/pressure'])"

    async def compare() -> None:
        pairs = (_SPANS, _COUNTS, _PAUSES, _LAGS, _MEANS, _GROUPS, _STEPS, _CHANGES, _RUNS, _HELD)
        *found, own, plain = await rows_of_each(plant, *pairs, one.format(_SPANS), one.format(_COUNTS))
        for rows, expected in zip(found[::2], found[1::2], strict=True):
            assert rows == expected
            assert len(rows) > 1
        assert own == plain
        assert own

    await compare()
    await archived_and_dropped(plant)
    await compare()
    await plant.late()
    await plant.late("unit/pressure", [(5 * HOUR_US + 60_500_000, bits(1.0), 0)])  # between others
    await compare()
    await plant.job()
    await plant.drop()
    await compare()


async def test_days_are_looked_up_once_for_all_channels(plant: Maintained, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = await rows_of(plant, _STEPS)
    await plant.job()
    read = list[date]()

    def observed(location: Location, folder: DayFolder) -> Manifest:
        read.append(folder.day)
        return read_manifest(location, folder)

    monkeypatch.setattr("history.archive.archived_days.read_manifest", observed)
    monkeypatch.setattr("history.sql.sources.portion._AT_A_TIME", 1)
    assert await rows_of(plant, _STEPS) == expected
    assert read == [DAY, NEXT]
