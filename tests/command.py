"""``plantlog`` as a user types it, in this process: the start of another takes 0.4 s of processor time.

``tests/e2e`` runs ``./plantlog`` itself.
"""

from __future__ import annotations

import asyncio
import io
import logging
import os
import sys
import warnings
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import pytest

from ops.cli.app import main

_LOGGERS = ("asyncua", "asyncio")  # whose levels ``main`` sets


@dataclass(frozen=True, slots=True)
class CommandResult:
    """Exit code and output of a command."""

    code: int
    out: str
    err: str


def run(state: Path, *words: object) -> CommandResult:
    """A command on a state folder."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    levels = [logging.getLogger(name).level for name in _LOGGERS]
    with (
        pytest.MonkeyPatch.context() as patch,
        redirect_stdout(out),
        redirect_stderr(err),
        warnings.catch_warnings(),
    ):
        patch.setenv("PLANTLOG_STATE", str(state))
        patch.setattr(sys, "argv", ["plantlog", *map(str, words)])
        patch.setattr("core.process.scheduling.lower_priority", lambda: None)  # it can't be raised again
        try:
            code = main()
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 0
    for name, level in zip(_LOGGERS, levels, strict=True):
        logging.getLogger(name).setLevel(level)
    return CommandResult(code, *(text.buffer.getvalue().decode() for text in (out, err)))


async def plantlog(state: Path, *words: object) -> CommandResult:
    """A command, beside what else the test does, but for another command: output is the process's."""
    return await asyncio.to_thread(run, state, *words)


async def in_a_process(state: Path, *words: object) -> CommandResult:
    """A command in a process of its own."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "ops", *map(str, words)),
        env={**os.environ, "PLANTLOG_STATE": str(state)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    return CommandResult(process.returncode or 0, out.decode(), err.decode())
