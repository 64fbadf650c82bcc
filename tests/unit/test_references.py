"""Full names in docstrings and comments, such as ``ingest.gaps.Gaps.open``, name what exists."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

from core.paths import CHECKOUT

ROOMS = sorted(path.parent.name for path in CHECKOUT.glob("*/__init__.py"))
_NAME = re.compile(rf"`((?:{'|'.join(ROOMS)})(?:\.\w+)+)(?:\(\))?`")


@cache
def statements(path: Path) -> list[ast.stmt]:
    return ast.parse(path.read_text()).body


def names(statement: ast.stmt) -> Iterator[str]:
    """What a statement defines."""
    match statement:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case ast.Assign(targets=targets):
            yield from (target.id for target in targets if isinstance(target, ast.Name))
        case ast.AnnAssign(target=ast.Name(id=name)):
            yield name
        case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
            yield from (alias.asname or alias.name for alias in aliases)


def is_defined(path: Iterable[str], inside: list[ast.stmt]) -> bool:
    """Whether statements define a name; ``path``: of classes and functions, from the outermost."""
    for name in path:
        found = [statement for statement in inside if name in names(statement)]
        if not found:
            return False
        inside = getattr(found[0], "body", [])
    return True


def exists(name: str) -> bool:
    """Whether it is a folder, a module, or something in a module."""
    parts = name.split(".")
    for k in range(len(parts), 0, -1):
        folder = CHECKOUT.joinpath(*parts[:k])
        if (module := folder.with_suffix(".py")).exists() or (module := folder / "__init__.py").exists():
            return is_defined(parts[k:], statements(module))
    return False


@pytest.mark.parametrize("room", ROOMS)
def test_every_full_name_exists(room: str) -> None:
    dead = [
        f"{path.relative_to(CHECKOUT)}: {name}"
        for path in sorted((CHECKOUT / room).rglob("*.py"))
        if "node_modules" not in path.parts
        for name in _NAME.findall(path.read_text())
        if not exists(name)
    ]
    assert dead == []


def test_missing_names_are_found() -> None:
    assert exists("ingest.gaps.Gaps.open_each")
    assert exists("ingest.gaps")
    assert not exists("ingest.gaps.Gaps.nothing")
    assert not exists("ingest.nothing.Gaps")
