"""What is on disk of how far a source was heard, and what the next process makes of it."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from ingest.errors import SpoolError
from ingest.heard import Heard
from ingest.spool.append import Spool
from tests.appender import Kept
from tests.samples import T0, batch


def test_the_first_start_of_all_interrupts_nothing() -> None:
    assert Heard(1, Kept()).interruption() is None


async def test_a_kill_leaves_the_last_sample_and_a_stop_says_so(tmp_path: Path) -> None:
    """Over a real spool file, opened anew each time as a new process does."""
    spool = Spool(tmp_path / "a.sqlite", 1 << 20)
    listening = Heard(1, spool)
    await spool.append(batch([(1, 5, 1.0, 0)]), listening.notes(T0 + 5))
    await spool.close()

    spool = Spool(tmp_path / "a.sqlite", 1 << 20)
    listening = Heard(1, spool)
    assert listening.interruption() == (T0 + 5, "killed")
    assert Heard(2, spool).interruption() is None, "each source has notes of its own"
    await spool.append(batch([(1, 9, 1.0, 0)]), listening.notes(T0 + 9))
    await listening.stop(T0 + 10)
    await spool.close()

    spool = Spool(tmp_path / "a.sqlite", 1 << 20)
    listening = Heard(1, spool)
    assert listening.interruption() == (T0 + 9, "stopped")
    await spool.append(batch([(1, 20, 1.0, 0)]), listening.notes(T0 + 20))
    assert listening.interruption() == (T0 + 20, "killed"), "that it was stopped once is over with the first sample"
    await spool.close()


async def test_killed_before_the_first_sample_after_a_stop_is_still_the_stop() -> None:
    kept = Kept()
    await kept.note(Heard(1, kept).notes(T0))
    await Heard(1, kept).stop(T0)
    again = Kept(kept.notes)
    assert Heard(1, again).interruption() == (T0, "stopped")
    assert Heard(1, Kept(again.notes)).interruption() == (T0, "stopped")


async def test_idle_is_written_at_most_once_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    kept = Kept()
    listening = Heard(1, kept)
    await listening.idle(T0)
    now = 100.9
    await listening.idle(T0 + 1)
    assert listening.interruption() == (T0, "killed")
    now = 101.0
    await listening.idle(T0 + 2)
    assert listening.interruption() == (T0 + 2, "killed")
    listening.notes(T0 + 3)  # rides with an append
    now = 101.5
    await listening.idle(T0 + 4)
    assert listening.interruption() == (T0 + 2, "killed")


async def test_a_source_that_was_never_heard_was_not_stopped() -> None:
    kept = Kept()
    await Heard(1, kept).stop(T0)
    assert kept.notes == {}


class _Refusing(Kept):
    async def note(self, notes: object) -> None:
        raise SpoolError("no")


async def test_a_disk_that_refuses_makes_the_interruption_longer_and_nothing_else() -> None:
    refusing = _Refusing({"heard:1": str(T0)})
    listening = Heard(1, refusing)
    await listening.idle(T0 + 5)
    await listening.stop(T0 + 6)
    assert listening.interruption() == (T0, "killed")
