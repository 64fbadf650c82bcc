"""Limits of queries of DuckDB: which are legal, what is beyond them, and the time of all that a command does."""

from __future__ import annotations

import re
from concurrent.futures import wait
from pathlib import Path
from typing import Any

import duckdb
import pytest

from core.errors import OperationError
from history.sql.session import OutOfMemoryError, _errors
from history.sql.sources.execution import Limits
from tests.command import run
from tests.waiting import PATIENCE


@pytest.mark.parametrize("memory", ["8k", "-1GB", "1", "", "much", "0GB", "7.9MB", "1025TB", "50%", "2GB, 3GB"])
def test_memory_that_is_none_is_refused(memory: str) -> None:
    found = re.escape(f"--memory: found {memory!r}; legal: a size from 8MB to 1024TB, such as 500MB or 2GB")
    with pytest.raises(OperationError, match=f"^{found}$"):
        Limits(memory, 2, 60)


@pytest.mark.parametrize("memory", ["8MB", "500MB", "2GB", "2GiB", "1.5 gb", "1024TB"])
def test_legal_memory_is_what_duckdb_takes(memory: str) -> None:
    duckdb.connect(config={"memory_limit": Limits(memory, 2, 60).memory}).close()


def test_time_is_that_of_all_that_is_done() -> None:
    limits = Limits("2GB", 2, 0.01)
    with limits.deadline():
        wait([limits.stop], PATIENCE)
        with pytest.raises(OperationError, match=r"^the query took longer than 0\.01 s: .*, or raise --timeout$"):
            limits.require_time()
    limits = Limits("2GB", 2, 3600)
    with limits.deadline() as deadline:
        limits.require_time()
    deadline.join(PATIENCE)
    limits.require_time()


def test_answers_share_the_time_of_a_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def answer_slowly(*arguments: Any, **_: Any) -> None:
        [limits] = [one for one in arguments if isinstance(one, Limits)]
        wait([limits.stop], PATIENCE)
        limits.require_time()

    monkeypatch.setattr("history.questions.ask.answer", answer_slowly)
    done = run(tmp_path, "sql", "--timeout", "10ms", "--with", "a=timeline --from 1h", "SELECT 1")
    assert done.err.startswith("plantlog: the query took longer than 0.01 s"), done


def test_memory_that_a_function_lacks_is_told_as_that_of_a_query() -> None:
    """A question then asks about fewer channels at a time."""
    failures = list[BaseException]()

    def large() -> int:
        failures.append(MemoryError())
        raise failures[-1]

    with duckdb.connect() as connection:
        connection.create_function("large", large, [], "BIGINT")
        text = "the query needs more memory than there is: narrow"
        with pytest.raises(OutOfMemoryError, match=text), _errors(Limits("2GB", 2, 60), failures):
            connection.sql("SELECT large()").fetchall()
