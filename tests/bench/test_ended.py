"""A benchmark that is ended by SIGTERM leaves nothing behind, whatever it just does."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from core.paths import CHECKOUT
from tests.processes import command_line, environment
from tests.waiting import until_sync


@contextmanager
def _running(*arguments: str) -> Iterator[psutil.Popen]:
    command = [sys.executable, "-P", "-m", "ops", "lab", "bench", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
    with psutil.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as bench:
        try:
            yield bench
        finally:
            with suppress(psutil.NoSuchProcess):
                bench.kill()


def _folders(bench: psutil.Popen) -> set[Path]:
    """The folders that the benchmark's children work in."""
    folders = set()
    for child in bench.children(recursive=True):
        words = [*command_line(child), environment(child).get("PLANTLOG_STATE", "")]
        with suppress(OSError):
            words.append(str(Path(f"/proc/{child.pid}/fd/1").readlink()))
        folders |= {
            parent for word in words for parent in Path(word).parents if parent.name.startswith("plantlog-bench-")
        }
    return folders


def _of(folder: Path) -> list[str]:
    """The commands of the processes that work in a folder."""
    return [
        " ".join(command_line(process))
        for process in psutil.process_iter()
        if any(str(folder) in word for word in (*command_line(process), *environment(process).values()))
    ]


def _assert_nothing_is_left(bench: psutil.Popen, folder: Path) -> None:
    _, errors = bench.communicate()
    assert (bench.returncode, "Traceback" in errors) == (1, False), errors
    assert errors.endswith("terminated before it was finished\n")
    assert _of(folder) == []
    assert not folder.exists()


def test_day_that_is_ended_while_it_starts_leaves_nothing() -> None:
    with _running("day", "--channels", "4", "--minutes", "1") as bench:
        [folder] = until_sync(lambda: _folders(bench))
        bench.terminate()
        until_sync(lambda: any("down" in command_line(child) for child in bench.children()) or bench.poll() is not None)
        bench.terminate()  # twice, as who is impatient does
        _assert_nothing_is_left(bench, folder)


def test_benchmark_that_is_ended_while_its_server_starts_leaves_nothing(server: str) -> None:
    assert server, "it sees to the programs being there"
    with _running("archive", "--channels", "1") as bench:
        [folder] = until_sync(lambda: _folders(bench))
        bench.terminate()
        _assert_nothing_is_left(bench, folder)
