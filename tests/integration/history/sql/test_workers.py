"""Processes that read the archive: what they return, how they fail, and when they end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import psutil
import pytest

from core.errors import OperationError
from history.archive.row_group import Rows
from history.sql.columns import Columns, each
from history.sql.task import Task
from history.sql.workers import Workers


@dataclass(frozen=True)
class Numbers:
    """One sample, without a file."""

    number: int
    is_amended: bool = False

    @property
    def places(self) -> set[int]:
        return {self.number}

    def read(self, names: Sequence[str], footers: dict[str, Any]) -> Iterator[Rows]:
        yield Rows(1, {name: np.array([self.number]) for name in ("channel_id", "time", *names)})


def number_and_process(found: Columns) -> tuple[int, int]:
    return int(found["time"][0]), os.getpid()


def refuse(found: Columns) -> None:
    raise OperationError("the file is damaged")


def fail(found: Columns) -> None:
    raise KeyError("seven")


def end(found: Columns) -> None:
    if found["time"][0] == 2:
        os.kill(os.getpid(), signal.SIGKILL)


def tasks(made: Callable[[Columns], Any], n: int) -> list[Task[Any]]:
    return [Task([Numbers(number)], [], (), each(made), False) for number in range(n)]  # type: ignore[list-item]


@contextmanager
def two() -> Iterator[Workers]:
    workers = Workers(2)
    try:
        yield workers
    finally:
        workers.close()


def test_results_of_other_processes_are_in_order() -> None:
    with two() as workers:
        found = [one for of_task in workers.run(tasks(number_and_process, 20)) for one in of_task]
        assert [number for number, _ in found] == list(range(20))
        processes = {process for _, process in found}
        assert len(processes) == 2
        assert os.getpid() not in processes
        running = [psutil.Process(one) for one in processes]
    assert not psutil.wait_procs(running, timeout=60)[1]


@pytest.mark.parametrize(("n", "processes"), [(1, 2), (20, 1)])
def test_little_is_read_here(n: int, processes: int) -> None:
    """A single task, and whatever may take no more than one thread."""
    found = [one for of_task in Workers(processes).run(tasks(number_and_process, n)) for one in of_task]
    assert found == [(number, os.getpid()) for number in range(n)]


def test_what_failed_is_said() -> None:
    with two() as workers:
        with pytest.raises(OperationError, match="the file is damaged"):
            list(workers.run(tasks(refuse, 2)))
        with pytest.raises(RuntimeError, match=r"in fail\s+raise KeyError"):
            list(workers.run(tasks(fail, 2)))
        with pytest.raises(OperationError, match=r"that reads the archive was ended, perhaps because .*: ask again"):
            list(workers.run(tasks(end, 4)))
        assert len(list(workers.run(tasks(number_and_process, 4)))) == 4


def test_they_end_with_the_process_that_started_them() -> None:
    code = (
        "from tests.integration.history.sql.test_workers import *\n"
        "workers = Workers(2)\n"
        "while True:\n"
        "    print(*{one for of in workers.run(tasks(number_and_process, 9)) for _, one in of}, flush=True)\n"
        "    input()"
    )
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        assert parent.stdin is not None
        found = [psutil.Process(int(one)) for one in parent.stdout.readline().split()]
        for one in found:
            one.send_signal(signal.SIGINT)  # as the terminal does to all; the one that started them decides
        print(file=parent.stdin, flush=True)
        assert {int(one) for one in parent.stdout.readline().split()} & {one.pid for one in found}
        assert all(one.is_running() for one in found)
        parent.kill()
    assert not psutil.wait_procs(found, timeout=60)[1]
