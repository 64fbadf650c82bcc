"""`plantlog lab bench day` on a real appliance: each part does its work in the order of generated time."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from lab.bench.day import tables
from lab.bench.day.measure import DayOptions, measure

CHANNELS = 8
HOURS = 4.5


@pytest.mark.timeout(900)
async def test_a_day_is_packed_sealed_and_counted(tmp_path: Path) -> None:
    """From 22:00 on: the hours before midnight are packed when their time is over, and then the day is sealed."""
    lines: list[str] = []
    options = DayOptions(CHANNELS, 1 / 10, HOURS, 14.0, 22, 2**30)  # on a busy machine packing steps back
    found = await measure(options, tmp_path, None, lines.append)
    assert found.ended == "end of the day"
    assert found.checked is not None
    assert (found.checked.wrong, found.checked.failed_jobs) == ([], {})
    assert found.checked.samples == CHANNELS * (HOURS * 360 + 1)
    assert sum(hour.samples for hour in found.hours) <= found.checked.samples
    assert [hour.sealed_days for hour in found.hours] == sorted(hour.sealed_days for hour in found.hours)
    for hour in found.hours:  # an hour is packed when it has been over for an hour, and no sooner
        assert hour.oldest_hours >= 1.0 or hour.packed == 0
    assert found.hours[-1].packed > 0
    assert found.hours[-1].cpu["postgres: ingest"] > 0
    assert len(tables.tables(found)) == 6
    tables.plot(found, tmp_path / "day.svg")
    assert "<svg" in (tmp_path / "day.svg").read_text()
    assert not [p for p in psutil.process_iter(["cmdline"]) if str(tmp_path) in " ".join(p.info["cmdline"] or ())]
