"""Imports at the start of a notebook and of commands: each library costs a tenth of a second or more."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from core.paths import CHECKOUT


def imported(code: str, state: Path | None = None) -> set[str]:
    """The modules that are imported at the end of a program."""
    command = [sys.executable, "-P", "-c", f"{code}\nimport sys; print(*sys.modules)"]
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT), "PLANTLOG_STATE": str(state)}
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return {*run.stdout.splitlines()[-1].split()}


def run_by(state: Path, *words: str) -> set[str]:
    """The modules that are imported at the end of a command."""
    code = f"import sys; sys.argv[1:] = {words!r}\nfrom ops.cli.app import main\ntry: main()\nexcept SystemExit: pass"
    return imported(code, state)


def test_notebook_imports_what_it_needs_when_it_is_called() -> None:
    modules = imported("from history import notebook; notebook.samples, notebook.polars, notebook.ArchiveError")
    assert not modules & {"pyarrow", "numpy", "duckdb", "asyncpg", "asyncio", "rich", "history.standalone"}
    assert "history.archive.location" in imported("from history.notebook import S3Options, ask")


def test_question_of_an_archive_needs_no_database_driver(tmp_path: Path) -> None:
    code = "from history import notebook\ntry: notebook.ask({location!r}, 'none')\nexcept notebook.ArchiveError: pass"
    modules = imported(code.format(location=str(tmp_path)))
    assert "history.questions.ask" in modules
    assert not modules & {"asyncpg", "pydantic", "rich", "duckdb"}


def test_questions_are_listed_without_what_answers_them(tmp_path: Path) -> None:
    listed = run_by(tmp_path, "ask", "--limit", "3")
    assert "history.questions.ask" in listed
    assert not listed & {"pydantic", "duckdb", "numpy", "pyarrow"}


def test_sessions_of_sql_connect_when_a_query_needs_a_table(tmp_path: Path) -> None:
    """Not before: Arrow and the database's driver take as long as DuckDB. None imports pydantic for its options."""
    slow = {"numpy", "pyarrow", "asyncpg", "history.standalone"}
    queried = run_by(tmp_path, "sql", "SELECT 1", "--limit", "3")
    assert "history.sql.session" in queried
    assert not queried & (slow | {"pydantic", "rich.markdown"})
    assert run_by(tmp_path, "sql", "SHOW TABLES") >= slow


def test_rows_of_kernels_become_arrow_without_masked_arrays() -> None:
    code = """
import numpy as np
import pyarrow as pa
from core.imports import leave_out
from history.sql.kernels.columns import listed
leave_out("pandas")
kind = pa.struct([("time", pa.timestamp("us", tz="UTC")), ("value", pa.float64()), ("on", pa.bool_())])
columns = {"time": np.array([0, 1]), "value": np.array([0.5, np.nan]), "on": np.array([False, True])}
row = listed(kind, [columns]).to_pylist()[0][1]
assert (row["time"].microsecond, row["on"]) == (1, True) and row["value"] != row["value"]
"""
    assert "numpy.ma" not in imported(code)
