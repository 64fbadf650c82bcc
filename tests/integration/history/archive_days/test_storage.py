"""Storage of the archive that does not answer: it holds up nothing, and loses nothing."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from history.archive import location as storage
from history.archive.location import Location
from history.archive.manifest import PROBE
from ops.maintenance import archive
from tests.integration.history.archive_maintenance import Maintained
from tests.integration.history.archive_site import problems_of
from tests.integration.history.sealed_plant import DAY
from tests.waiting import until

_ACCESSES = ("created", "write", "move", "opened", "read", "digest", "size", "listing", "remove", "clear")
_SESSIONS = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'plantlog archive'"


def _release(pipe: Path) -> None:
    """Whoever waits for the pipe's other end goes on, and nobody else finds it: on a busy machine, some came later."""
    with suppress(FileNotFoundError):
        opened = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)
        pipe.unlink(missing_ok=True)
        os.close(opened)


async def test_storage_that_never_answers_ends_the_run(plant: Maintained, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two pipes that nobody reads: the file that shows whether the storage answers, and a manifest."""
    folder = plant.site.folder
    samples = await plant.stored()
    await plant.job()
    await plant.late()
    await plant.site.plant.seal()
    late = await plant.stored()
    monkeypatch.setattr(archive, "_ANSWER_SECONDS", 0.5)
    monkeypatch.setattr(storage, "_CANCEL_SECONDS", 0.1)
    [manifest] = folder.glob(f"manifests/*/{DAY}.json")
    pipes = [folder / f"{PROBE}.partial", manifest.with_name(f"{manifest.name}.partial")]
    for pipe in pipes:
        os.mkfifo(pipe)
    done = await plant.job()
    assert (done.outcome, done.done.detail) == ("failed", f"archive {folder} does not answer for 0.5 s")
    await until(lambda: _none(plant))
    assert await plant.drop() == ["unarchived"]
    done = await plant.job()
    assert done.done.detail == "the archive's storage does not answer: an earlier access to it still waits"
    assert plant.in_archive() == samples
    monkeypatch.undo()

    async def archived() -> bool:
        for pipe in pipes:
            _release(pipe)
        return (await plant.job()).outcome == "ok"

    await until(archived)
    assert plant.in_archive() == late
    assert problems_of(plant.site.opened) == []
    assert await plant.drop() == ["chunk"]


async def _none(plant: Maintained) -> bool:
    return not await plant.owner.fetchval(_SESSIONS)


async def test_event_loop_never_waits_for_the_storage(plant: Maintained, monkeypatch: pytest.MonkeyPatch) -> None:
    """It also runs the other jobs of maintenance."""
    loop, seen = threading.current_thread(), set[str]()

    def observed(name: str) -> Any:
        original = getattr(Location, name)

        def access(*arguments: Any) -> Any:
            assert threading.current_thread() is not loop, name
            seen.add(name)
            return original(*arguments)

        return access

    for name in _ACCESSES:
        monkeypatch.setattr(Location, name, observed(name))
    assert (await plant.job()).outcome == "ok"
    assert await plant.drop() == ["chunk"]
    await plant.late()
    assert (await plant.job()).outcome == "ok"
    assert seen >= set(_ACCESSES) - {"remove"}
