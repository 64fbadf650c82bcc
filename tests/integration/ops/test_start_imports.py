"""Programs import only what they use at their start: each second of an import is a second of every command."""

from __future__ import annotations

import subprocess
import sys

import pytest

from core.paths import CHECKOUT
from ops.cli import app as command_line


@pytest.mark.parametrize(
    ("started", "slow"),
    [
        (
            "from ops.cli import app; app.application()",
            {"asyncpg", "asyncua", "cryptography", "duckdb", "numpy", "pyarrow", "pydantic"},
        ),
        ("import ops.appliance.status, ops.appliance.status_table", {"aiohttp", "asyncua", "cryptography", "numpy"}),
        ("import ops.appliance.apply", {"aiohttp", "asyncua", "cryptography", "numpy"}),
        ("import ops.cli.query, history.questions.ask", {"cryptography", "duckdb", "numpy", "pyarrow", "pydantic"}),
        ("import history.questions.portions", {"cryptography", "pydantic"}),
        ("import ingest.__main__", {"asyncpg", "asyncua"}),
    ],
    ids=[
        "plantlog --help",
        "plantlog status",
        "plantlog apply",
        "plantlog ask",
        "plantlog ask, answered",
        "collectors",
    ],
)
def test_start_is_not_slowed_by_libraries_that_are_not_used(started: str, slow: set[str]) -> None:
    code = f"import sys; {started}; print(*{{name.partition('.')[0] for name in sys.modules}})"
    run = subprocess.run([sys.executable, "-c", code], cwd=CHECKOUT, capture_output=True, text=True, check=True)
    assert set(run.stdout.split()) & slow == set()


def test_no_command_is_imported_but_the_one_that_is_named() -> None:
    code = (
        "import sys; from ops.cli import app; app.command_line('ask'); "
        "print(*{name for name in sys.modules if name.startswith('ops.cli.')})"
    )
    run = subprocess.run([sys.executable, "-c", code], cwd=CHECKOUT, capture_output=True, text=True, check=True)
    of_all = {"ops.cli.app", "ops.cli.options", "ops.cli.permissions", "ops.cli.values"}
    assert set(run.stdout.split()) == {*of_all, "ops.cli.query"}


def test_no_commands_are_built_but_the_one_that_is_named() -> None:
    every = set(command_line.command_line("").commands)
    assert every == set(command_line.COMMANDS)
    for name in every:
        assert set(command_line.command_line(name).commands) == {name}
    assert set(command_line.command_line("ask-").commands) == every
