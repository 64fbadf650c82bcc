"""Notes of how far a source was heard, and the gaps that the next process makes of them."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from core.errors import SpoolError
from ingest.downtime import Downtime
from ingest.spool.append import Spool
from tests.memory_appender import MemoryAppender
from tests.samples import T0, batch


def test_first_start_is_no_interruption() -> None:
    assert Downtime(1, MemoryAppender()).interruption() is None


async def test_kill_is_dated_by_the_last_sample_and_stop_by_its_own_time(tmp_path: Path) -> None:
    """Over a real spool file, opened anew each time as a new process does."""
    spool = Spool(tmp_path / "a.sqlite", 1 << 20)
    listening = Downtime(1, spool)
    await spool.append(batch([(1, 5, 1.0, 0)]), listening.notes(T0 + 5))
    await spool.close()

    spool = Spool(tmp_path / "a.sqlite", 1 << 20)
    listening = Downtime(1, spool)
    assert listening.interruption() == (T0 + 5, "killed")
    assert Downtime(2, spool).interruption() is None, "each source has notes of its own"
    await spool.append(batch([(1, 9, 1.0, 0)]), listening.notes(T0 + 9))
    await listening.record_stop(T0 + 10)
    await spool.close()

    spool = Spool(tmp_path / "a.sqlite", 1 << 20)
    listening = Downtime(1, spool)
    assert listening.interruption() == (T0 + 9, "stopped")
    await spool.append(batch([(1, 20, 1.0, 0)]), listening.notes(T0 + 20))
    assert listening.interruption() == (T0 + 20, "killed"), "that it was stopped once is over with the first sample"
    await spool.close()


async def test_kill_before_the_first_sample_after_a_stop_is_still_the_stop() -> None:
    appended = MemoryAppender()
    await appended.note(Downtime(1, appended).notes(T0))
    await Downtime(1, appended).record_stop(T0)
    again = MemoryAppender(appended.notes)
    assert Downtime(1, again).interruption() == (T0, "stopped")
    assert Downtime(1, MemoryAppender(again.notes)).interruption() == (T0, "stopped")


async def test_idle_time_is_noted_at_most_once_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    appended = MemoryAppender()
    listening = Downtime(1, appended)
    await listening.touch(T0)
    now = 100.9
    await listening.touch(T0 + 1)
    assert listening.interruption() == (T0, "killed")
    now = 101.0
    await listening.touch(T0 + 2)
    assert listening.interruption() == (T0 + 2, "killed")
    listening.notes(T0 + 3)  # rides with an append
    now = 101.5
    await listening.touch(T0 + 4)
    assert listening.interruption() == (T0 + 2, "killed")


async def test_source_without_samples_was_not_interrupted() -> None:
    appended = MemoryAppender()
    await Downtime(1, appended).record_stop(T0)
    assert Downtime(1, MemoryAppender(appended.notes)).interruption() is None


class _Refusing(MemoryAppender):
    async def note(self, notes: object) -> None:
        raise SpoolError("no")


async def test_full_disk_only_makes_the_interruption_longer() -> None:
    refusing = _Refusing({"heard:1": str(T0)})
    listening = Downtime(1, refusing)
    await listening.touch(T0 + 5)
    await listening.record_stop(T0 + 6)
    assert listening.interruption() == (T0, "killed")
