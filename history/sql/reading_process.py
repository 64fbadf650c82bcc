"""A process that reads the archive and computes for another one (history/sql/workers.py), and its forks."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Sequence
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

import pyarrow.compute  # noqa: F401 (before the fork: it takes 0.15 s)

from core.errors import OperationError
from history.sql.task import Task


def _serve(connection: Any) -> None:
    """Do tasks until the other end is closed."""
    footers = dict[str, Any]()
    while True:
        try:
            task = connection.recv()
            connection.send(_answer(task, footers))
        except (EOFError, BrokenPipeError, ConnectionResetError):
            return


def _forked(ends: Sequence[int]) -> Any:
    """A connection of each process. The others are forks of the first: to import all of this takes 0.5 s of CPU."""
    own, *others = ends
    forks = list[int]()
    for end in others:
        forks.append(os.fork())
        if not forks[-1]:
            own = end
            break
    else:
        signal.signal(signal.SIGTERM, partial(_wait, forks))
    for end in ends:
        if end != own:
            os.close(end)  # so that each sees when the other end of its own is closed
    return Connection(own)


def _wait(forks: Sequence[int], *_: Any) -> None:
    """End after all of them, which had the same signal."""
    for one in forks:
        os.waitpid(one, 0)
    os._exit(0)


def _answer(task: Task[Any], footers: dict[str, Any]) -> tuple[bool, Any]:
    try:
        return True, task.done(footers)
    except OperationError as error:
        return False, error
    except Exception:
        return False, RuntimeError(traceback.format_exc())


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever started it ends it
    _serve(_forked([int(end) for end in sys.argv[1:]]))
