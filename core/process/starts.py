"""Starts of processes, noted in the state folder until maintenance has recorded them as events ``restart``.

Collectors record theirs themselves, by source. Others have no spool, and some may not write to the database.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

from core.installation import installation_of
from core.timestamps import now_us

log = logging.getLogger(__name__)

_FOLDER = Path("run/starts")  # in the state folder; files named PROCESS-MICROSECONDS
_MAX_NOTED = 1000  # while maintenance does not run


def note(state: Path, process: str) -> None:
    """Note that a process of an appliance starts now. A full disk is logged, and does not prevent the start."""
    if installation_of(state) is None:
        return
    folder = state / _FOLDER
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if sum(1 for _ in folder.iterdir()) < _MAX_NOTED:
            (folder / f"{process}-{now_us()}").touch()
    except OSError as error:
        log.warning("the start of %s is not recorded: %s", process, error)


def notes(state: Path) -> Iterator[tuple[Path, str, int]]:
    """The file, the process, and the time (µs) of each start that was noted, in no order."""
    for path in (state / _FOLDER).glob("*-*"):
        process, _, time = path.name.rpartition("-")
        if time.isdecimal():
            yield path, process, int(time)
