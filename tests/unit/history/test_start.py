"""Imports at the start of a notebook: each library costs a tenth of a second or more."""

from __future__ import annotations

import os
import subprocess
import sys

from core.paths import CHECKOUT


def imported(code: str) -> set[str]:
    """The modules that are imported at the end of a program."""
    command = [sys.executable, "-P", "-c", f"{code}\nimport sys; print(*sys.modules)"]
    run = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": str(CHECKOUT)}, capture_output=True, text=True, check=True
    )
    return {*run.stdout.split()}


def test_notebook_imports_what_it_needs_when_it_is_called() -> None:
    modules = imported("from history import notebook; notebook.samples, notebook.polars, notebook.ArchiveError")
    assert not modules & {"pyarrow", "numpy", "duckdb", "asyncpg", "asyncio", "rich", "history.standalone"}
    assert "history.questions.ask" in imported("from history.notebook import S3Options, ask")
