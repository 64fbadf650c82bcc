"""Limits of queries of DuckDB: which are legal."""

from __future__ import annotations

import re

import duckdb
import pytest

from core.errors import OperationError
from history.sql.sources.execution import Limits


@pytest.mark.parametrize("memory", ["8k", "-1GB", "1", "", "much", "0GB", "7.9MB", "1025TB", "50%", "2GB, 3GB"])
def test_memory_that_is_none_is_refused(memory: str) -> None:
    found = re.escape(f"--memory: found {memory!r}; legal: a size from 8MB to 1024TB, such as 500MB or 2GB")
    with pytest.raises(OperationError, match=f"^{found}$"):
        Limits(memory, 2, 60)


@pytest.mark.parametrize("memory", ["8MB", "500MB", "2GB", "2GiB", "1.5 gb", "1024TB"])
def test_legal_memory_is_what_duckdb_takes(memory: str) -> None:
    duckdb.connect(config={"memory_limit": Limits(memory, 2, 60).memory}).close()
