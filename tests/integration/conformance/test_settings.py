"""The setting 'compression': which form a closed day gets, and that a day keeps the form that it has."""

from __future__ import annotations

from datetime import datetime, timedelta

import asyncpg
import pytest

from ops.maintenance.packing import pack_days
from tests.integration.conformance.plant import ConformancePlant
from tests.sample_tables import DAY, bits

_DAYS = [DAY + timedelta(days=n) for n in range(5)]


async def test_native_compression_without_columnstore_is_refused_with_a_hint(plant: ConformancePlant) -> None:
    await plant.fill(minutes=60)
    await plant.set_compression("native")
    if plant.edition == "community":
        await plant.compress()
        assert await plant.form_of_days() == {(DAY, "columnstore")}
    else:
        with pytest.raises(asyncpg.FeatureNotSupportedError) as error:
            await plant.compress()
        assert "no columnstore" in str(error.value)
        assert error.value.hint == 'Set compression = "packed", or run TimescaleDB\'s Community edition.'
        assert await plant.form_of_days() == {(DAY, "rows")}


async def test_unknown_compression_is_refused(plant: ConformancePlant) -> None:
    await plant.set_compression("zip")
    with pytest.raises(asyncpg.PostgresError, match="compression is 'zip'"):
        await plant.compress()


@pytest.mark.slow
async def test_closed_day_keeps_its_form(plant: ConformancePlant) -> None:
    """The setting changes each day, in the middle of one too; late rows come to all days."""
    native = "native" if plant.edition == "community" else None
    column = "columnstore" if plant.edition == "community" else "packed"
    await plant.fill(_DAYS[0], 1440, 4)
    await plant.set_compression(native)
    await plant.compress(_DAYS[1])
    await plant.fill(_DAYS[1], 1440, 4)
    await plant.set_compression("packed")
    await plant.compress(_DAYS[1] + timedelta(hours=12))  # half of it is packed
    await plant.set_compression(native)
    await plant.compress(_DAYS[2])  # so is the other half
    await plant.fill(_DAYS[2], 1440, 4)
    await plant.compress(_DAYS[3])
    await plant.fill(_DAYS[3], 600, 4)
    await plant.compress(_DAYS[3])
    expected = {(_DAYS[0], column), (_DAYS[1], "packed"), (_DAYS[2], column), (_DAYS[3], "rows")}
    await _holds(plant, expected, 3 * 1440 + 600)
    late = [(n * 86_400_000_000 + 7, bits(0.5), 0) for n in range(4)]
    for count, form in enumerate((native, "packed"), 1):
        await plant.copy(2, late)
        assert len(await plant.everywhere(2, _DAYS[0], _DAYS[4])) == 3 * 1440 + 600 + 4 * count
        await plant.set_compression(form)
        await plant.compress(_DAYS[3])
        late = [(time + 1, value, status) for time, value, status in late]
    await plant.compress(_DAYS[3])
    assert len(await plant.everywhere(2, _DAYS[0], _DAYS[4])) == 3 * 1440 + 600 + 8
    await pack_days(plant.owner, _DAYS[3])  # said outright, it leaves them too
    assert {day: form for day, form in await plant.form_of_days() if form != "rows"} == dict(sorted(expected)[:3])
    assert len(await plant.everywhere(2, _DAYS[0], _DAYS[4])) == 3 * 1440 + 600 + 8


async def _holds(plant: ConformancePlant, expected: set[tuple[datetime, str]], minutes: int) -> None:
    await plant.compress(_DAYS[3])  # drops the chunks that were emptied
    assert await plant.form_of_days() == expected
    for channel in range(1, 5):
        assert len(await plant.everywhere(channel, _DAYS[0], _DAYS[4])) == minutes
