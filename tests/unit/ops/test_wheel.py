"""The wheel of ``plantlog_archive``: what is in it, without installing it (tests/integration/history/notebook does)."""

from __future__ import annotations

import ast
import json
import zipfile
from pathlib import Path

import pytest

from core.bundle import digest
from core.errors import OperationError
from core.paths import CHECKOUT
from ops.packaging import wheel


def test_nothing_in_it_imports_what_it_does_not_require() -> None:
    modules = wheel.modules()
    assert {"history.notebook", "history.notebook.archive", "history.archive_days.verify"} <= {*modules}
    assert "core.database" not in modules


def test_another_library_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wheel, "REQUIRED", ("cryptography", "duckdb", "numpy"))
    with pytest.raises(OperationError, match="imports pyarrow, which plantlog_archive must not need"):
        wheel.modules()


def test_it_imports_itself_and_is_the_same_again(tmp_path: Path) -> None:
    for folder in ("first", "again"):
        wheel.make(tmp_path / folder)
    [first], [again] = ([*(tmp_path / folder).iterdir()] for folder in ("first", "again"))
    assert digest(first) == digest(again)
    with zipfile.ZipFile(first) as made:
        for name in made.namelist():
            if name.endswith(".py"):
                tree = ast.parse(made.read(name))
                modules = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module}
                assert not {module for module in modules if module.partition(".")[0] in ("core", "history", "schema")}


def test_notebook_in_the_documentation_has_no_outputs() -> None:
    cells = json.loads((CHECKOUT / "docs" / "notebook.ipynb").read_text())["cells"]
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in cells)
