"""The sections of ``schema/queries``: Python loads only those that exist, and every one of them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from functools import cache

import pytest

from schema import FOLDER
from schema.queries import load

_ROOT = FOLDER.parent
_NAMES = sorted(path.stem for path in (FOLDER / "queries").glob("*.sql"))
_PACKAGES = ("core", "dashboards", "history", "ingest", "lab", "ops", "simulator", "tests")


@cache
def _modules() -> dict[str, ast.Module]:
    """The modules that load SQL, by their path."""
    paths = sorted(path for package in _PACKAGES for path in (_ROOT / package).rglob("*.py"))
    texts = {path.relative_to(_ROOT).as_posix(): path.read_text(encoding="utf-8") for path in paths}
    return {path: ast.parse(text) for path, text in texts.items() if "from schema.queries import load" in text}


def _loaded(node: ast.AST) -> str | None:
    """``load("write")`` → ``write``; the function may have another name, the file must be one of ours."""
    match node:
        case ast.Call(func=ast.Name(id="load" | "queries"), args=[ast.Constant(value=str(name))]) if name in _NAMES:
            return name
    return None


def _named(node: ast.expr, loaded: Mapping[str, str]) -> str | None:
    return loaded.get(ast.unparse(node)) if loaded and isinstance(node, ast.Name | ast.Attribute) else None


def _subscripts(node: ast.AST, loaded: Mapping[str, str]) -> Iterator[tuple[str, ast.expr]]:
    """Each ``load(name)[key]``, and ``x[key]`` behind ``x = load(name)`` in the same scope: name and key."""
    names = dict(loaded)
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Assign) and (name := _loaded(child.value)):
            names[ast.unparse(child.targets[0])] = name
        if isinstance(child, ast.Subscript) and (name := _loaded(child.value) or _named(child.value, names)):
            yield name, child.slice
        yield from _subscripts(child, names)


def _pattern(key: ast.expr) -> str | None:
    """A regular expression of what a key may be; None: known only when it runs."""
    match key:
        case ast.Constant(value=str(text)):
            return re.escape(text)
        case ast.JoinedStr(values=parts):
            return "".join(re.escape(str(p.value)) if isinstance(p, ast.Constant) else r"\w+" for p in parts)
    return None


def _named_by(section: str, patterns: set[str]) -> bool:
    """Most patterns are plain names, and thousands of them are not worth compiling."""
    return section in patterns or any(re.fullmatch(p, section) for p in patterns if r"\w+" in p)


def test_sections_that_python_loads_exist() -> None:
    checked = 0
    for path, tree in _modules().items():
        for name, key in _subscripts(tree, {}):
            if (pattern := _pattern(key)) is not None:
                assert any(_named_by(section, {pattern}) for section in load(name)), f"{path}: {name}.sql {pattern}"
                checked += 1
    assert checked > 200


@cache
def _patterns() -> dict[str, set[str]]:
    """File → what the modules that load it may name."""
    found: dict[str, set[str]] = {name: set() for name in _NAMES}
    for tree in _modules().values():
        nodes = list(ast.walk(tree))
        named = {p for n in nodes if isinstance(n, ast.Constant | ast.JoinedStr) and (p := _pattern(n))} - {r"\w+"}
        for name in {loaded for node in nodes if (loaded := _loaded(node))}:
            found[name] |= named
    return found


@pytest.mark.parametrize("name", _NAMES)
def test_every_section_is_loaded(name: str) -> None:
    """By a module that loads its file, and names it there."""
    patterns = _patterns()[name]
    unused = [section for section in load(name) if not _named_by(section, patterns)]
    assert not unused, f"{name}.sql"


@pytest.mark.parametrize("name", _NAMES)
def test_a_section_has_one_name(name: str) -> None:
    text = (FOLDER / "queries" / f"{name}.sql").read_text(encoding="utf-8")
    assert text.count("-- name: ") == len(load(name)) > 0


def test_every_macro_of_the_questions_says_what_it_gives() -> None:
    lines = load("duckdb")["macros"].splitlines()
    places = [place for place, line in enumerate(lines) if line.startswith("CREATE ")]
    assert len(places) > 10
    assert [lines[place] for place in places if not place or not lines[place - 1].startswith("--")] == []
