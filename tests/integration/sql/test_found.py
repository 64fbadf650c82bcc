"""What is found of samples while they are read, also by other processes: the same as of the samples."""

from __future__ import annotations

from datetime import date

import pytest

from ops.archive.location import Location
from ops.archive.manifest import DayFolder, Manifest, read_manifest
from ops.evidence.reader import begin
from tests.integration.evidence.archive_maintenance import Maintained
from tests.integration.evidence.plant import DAY
from tests.integration.sql.asking import NEXT, answers, archived_and_dropped, asked, failure
from tests.sample_tables import HOUR_US, bits

_SINCE, _UNTIL = f"TIMESTAMPTZ '{begin(DAY, 5)}' + INTERVAL '30 s'", f"TIMESTAMPTZ '{begin(NEXT, 24)}'"
_BINS = f"""
SELECT channel_id, bucket, sum(samples), sum(not_bad), min(first_time), max(last_time), sum(good),
       round(sum(good_sum), 6), arg_max(last_good, last_good_time)
FROM bins_of(NULL, {_SINCE}, {_UNTIL}, INTERVAL '7 min', INTERVAL '7 min', {_SINCE}, INTERVAL '2 s')
GROUP BY ALL ORDER BY ALL"""
_GROUPS = f"""
SELECT s.channel_id, date_bin(INTERVAL '7 min', s.time, {_SINCE}) AS bucket, count(*), count(*) FILTER (s.status >= 0),
       min(s.time), max(s.time), count(g.value), round(coalesce(sum(g.value), 0), 6), arg_max(g.value, g.time)
FROM samples AS s
LEFT JOIN good_samples(NULL, {_SINCE}, {_UNTIL}) AS g USING (channel_id, time)
WHERE s.time >= {_SINCE} AND s.time < {_UNTIL} GROUP BY ALL ORDER BY ALL"""
_WHOLE = f"""
SELECT count(*), count(*) FILTER (n > 1)
FROM (SELECT count(*) AS n, bool_or(whole) AS whole
      FROM bins_of(NULL, {_SINCE}, {_UNTIL}, INTERVAL '10 s', INTERVAL '10 s', {_SINCE}, NULL)
      GROUP BY channel_id, bucket)
WHERE whole"""
_PAUSES = f"""
FROM (SELECT channel_id, first_time AS time, epoch_us(first_time) - max(epoch_us(last_time)) OVER before AS pause
      FROM bins_of(NULL, {_SINCE}, {_UNTIL}, INTERVAL '7 min', INTERVAL '7 min', {_SINCE}, INTERVAL '2 s')
      WINDOW before AS (PARTITION BY channel_id ORDER BY first_time ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING))
WHERE pause >= 2e6 ORDER BY ALL"""
_LAGS = f"""
FROM (SELECT channel_id, time, epoch_us(time) - epoch_us(lag(time) OVER own) AS pause
      FROM samples WHERE time >= {_SINCE} AND time < {_UNTIL}
      WINDOW own AS (PARTITION BY channel_id ORDER BY time))
WHERE pause >= 2e6 ORDER BY ALL"""
_STEPS = f"""
SELECT channel_id, time, old_value, value FROM steps_of(NULL, {_SINCE}, {_UNTIL}, 1000000, 10)
WHERE is_step ORDER BY ALL"""
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


@pytest.mark.parametrize("at_a_time", [1_000_000, 40])
async def test_what_is_found_while_reading_is_that_of_the_samples(
    plant: Maintained, monkeypatch: pytest.MonkeyPatch, at_a_time: int
) -> None:
    """Also by other processes, and of a channel in parts."""
    monkeypatch.setattr("ops.sql.days._AT_A_TIME", at_a_time)

    one = "SELECT * FROM ({}) WHERE channel_id IN channel_ids(['*/pressure'])"

    async def compare() -> None:
        pairs = (_BINS, _GROUPS, _PAUSES, _LAGS, _STEPS, _CHANGES, _RUNS, _HELD)
        *found, [(whole, twice)], own, plain = await answers(
            plant, *pairs, _WHOLE, one.format(_BINS), one.format(_GROUPS)
        )
        for rows, expected in zip(found[::2], found[1::2], strict=True):
            assert rows == expected
            assert len(rows) > 5
        assert whole > 10
        assert twice == 0
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
    assert "sample_bins: since: found no constant" in await failure(plant, "SELECT count(*) FROM sample_bins")


async def test_days_are_looked_up_once_for_all_channels(plant: Maintained, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = await asked(plant, _STEPS)
    await plant.job()
    read = list[date]()

    def observed(location: Location, folder: DayFolder) -> Manifest:
        read.append(folder.day)
        return read_manifest(location, folder)

    monkeypatch.setattr("ops.archive.archived_days.read_manifest", observed)
    monkeypatch.setattr("ops.sql.days._AT_A_TIME", 1)
    assert await asked(plant, _STEPS) == expected
    assert read == [DAY, NEXT]
