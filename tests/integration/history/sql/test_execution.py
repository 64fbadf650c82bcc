"""Processes that read the archive and compute: what they return, how they fail, and when they end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from typing import TypeVar

import numpy as np
import psutil
import pytest

from core.errors import OperationError
from history.sql.sources.execution import in_order
from history.sql.sources.processes import Processes
from tests.waiting import PATIENCE, until_sync

Result = TypeVar("Result")


def number_and_process(number: int) -> tuple[int, int]:
    return number, os.getpid()


def refuse(number: int) -> None:
    raise OperationError("the file is damaged")


def fail(number: int) -> None:
    raise KeyError("seven")


def lack(number: int) -> None:
    np.empty(1 << 50, np.uint8)


def end(number: int) -> None:
    if number == 2:
        os.kill(os.getpid(), signal.SIGKILL)


def wait_for_ever(number: int) -> None:
    signal.pause()


def stop(number: int) -> None:
    os.killpg(0, signal.SIGSTOP)


def results(processes: Executor, call: Callable[[int], Result], n: int) -> list[Result]:
    return list(in_order(lambda number: processes.submit(call, number), range(n), 2))


def test_results_of_other_processes_are_in_order() -> None:
    with Processes(2) as processes:
        found = results(processes, number_and_process, 20)
        assert [number for number, _ in found] == list(range(20))
        ids = {process for _, process in found}
        assert len(ids) == 2
        assert os.getpid() not in ids
        running = [psutil.Process(pid) for pid in ids]
    assert not psutil.wait_procs(running, timeout=PATIENCE)[1]


def test_no_more_is_submitted_than_is_needed_soon() -> None:
    """Neither arguments nor results of all portions fit into memory."""
    submitted = list[int]()

    def submit(number: int) -> Future[int]:
        submitted.append(number)
        future = Future[int]()
        future.set_result(number)
        return future

    found = in_order(submit, range(9), 3)
    assert [(next(found), len(submitted)) for _ in range(9)] == [(n, min(9, n + 3)) for n in range(9)]


def test_large_arguments_wait_for_each_other() -> None:
    """A portion with many samples of the database takes memory here, however many workers there are."""
    read, done = list[int](), Future[int]()
    done.set_result(0)

    def items() -> Iterator[int]:
        for size in (1, 1, 5, 5, 1, 9, 1):
            read.append(size)
            yield size

    found = in_order(lambda _: done, items(), 20, lambda size: size, 7)
    assert [len(read) for _ in found] == [3, 4, 4, 6, 6, 6, 7]


def test_what_is_no_longer_needed_is_not_begun() -> None:
    waiting = [Future[int]() for _ in range(3)]
    waiting[0].set_result(0)
    found = in_order(waiting.__getitem__, range(3), 3)
    assert next(found) == 0
    found.close()  # type: ignore[attr-defined]
    assert [future.cancelled() for future in waiting] == [False, True, True]


def test_what_failed_is_said() -> None:
    with Processes(2) as processes:
        with pytest.raises(OperationError, match="the file is damaged"):
            results(processes, refuse, 2)
        with pytest.raises(RuntimeError, match=r"in fail\s+raise KeyError"):
            results(processes, fail, 2)
        with pytest.raises(MemoryError, match=r"Unable to allocate 1\.00 PiB"):
            results(processes, lack, 2)
        with pytest.raises(OperationError, match=r"that reads the archive was ended, perhaps because .*: ask again"):
            results(processes, end, 4)
        assert len(results(processes, number_and_process, 4)) == 4


def test_what_runs_is_ended_if_nobody_waits_for_it() -> None:
    processes = Processes(2)
    [running] = [psutil.Process(one) for _, one in results(processes, number_and_process, 1)]
    waited = processes.submit(wait_for_ever, 0)
    until_sync(waited.running)
    processes.shutdown(wait=False, cancel_futures=True)
    with pytest.raises(OperationError, match=r"was ended|have ended"):
        waited.result(60)
    assert not psutil.wait_procs([running], timeout=PATIENCE)[1]


def test_what_does_not_end_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("history.sql.sources.processes._END_SECONDS", 0.1)
    with Processes(2) as processes:
        [running] = [psutil.Process(one) for _, one in results(processes, number_and_process, 1)]
        waited = processes.submit(stop, 0)
        until_sync(lambda: running.status() == psutil.STATUS_STOPPED)
        processes.interrupt()
        with pytest.raises(OperationError, match="was ended"):
            waited.result(PATIENCE)
        assert not psutil.wait_procs([running], timeout=PATIENCE)[1]


def test_who_waits_for_what_can_not_be_killed_gets_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that reads in a storage that does not answer ends when that does, if ever."""
    monkeypatch.setattr("history.sql.sources.processes._END_SECONDS", 0.1)
    with Processes(1) as processes:
        waited = processes.submit(wait_for_ever, 0)
        until_sync(lambda: processes._first)
        left = processes._first
        assert left is not None
        with monkeypatch.context() as no_signals:
            no_signals.setattr(os, "killpg", lambda *_: None)
            processes.interrupt()
        with pytest.raises(OperationError, match="was ended"):
            waited.result(PATIENCE)
        assert len(results(processes, number_and_process, 4)) == 4
        left.kill()
        left.wait(PATIENCE)


def test_they_end_with_the_process_that_started_them() -> None:
    code = (
        "from tests.integration.history.sql.test_execution import *\n"
        "processes = Processes(2)\n"
        "while True:\n"
        "    print(*{one for _, one in results(processes, number_and_process, 9)}, flush=True)\n"
        "    input()"
    )
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        assert parent.stdin is not None
        found = [psutil.Process(int(pid)) for pid in parent.stdout.readline().split()]
        for process in found:
            process.send_signal(signal.SIGINT)  # as the terminal does to all; the one that started them decides
        print(file=parent.stdin, flush=True)
        assert {int(pid) for pid in parent.stdout.readline().split()} & {process.pid for process in found}
        assert all(process.is_running() for process in found)
        parent.kill()
    assert not psutil.wait_procs(found, timeout=PATIENCE)[1]


def test_what_is_interrupted_ends_and_the_next_call_is_answered() -> None:
    with Processes(2) as processes:
        waited = processes.submit(wait_for_ever, 0)
        until_sync(waited.running)
        processes.interrupt()
        with pytest.raises(OperationError, match="was ended"):
            waited.result(PATIENCE)
        assert len(results(processes, number_and_process, 4)) == 4
