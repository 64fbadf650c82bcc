"""Order in which SQL files that make objects of the schema ``plant`` can be run."""

from __future__ import annotations

import re
from collections.abc import Mapping
from graphlib import TopologicalSorter

_COMMENT_OR_STRING = re.compile(r"--[^\n]*|'(?:[^']|'')*'")
_CREATED = re.compile(
    r"^CREATE (?:OR REPLACE )?(?:TABLE|TYPE|VIEW|FUNCTION|PROCEDURE) (?:IF NOT EXISTS )?plant\.(\w+)", re.MULTILINE
)
_NAME = re.compile(r"\bplant\.(\w+)")


def created(sql: str) -> set[str]:
    """Names of the tables, types, views and routines that a file creates."""
    return set(_CREATED.findall(sql))


def in_order(files: Mapping[str, str]) -> dict[str, str]:
    """The files (name → SQL), each after those that create what it names.

    Raises graphlib.CycleError, a ValueError, where two files need each other.
    """
    statements = {name: _COMMENT_OR_STRING.sub("", sql) for name, sql in files.items()}
    creator = {item: name for name, sql in statements.items() for item in created(sql)}
    needs = {
        name: sorted({creator[item] for item in _NAME.findall(sql) if item in creator} - {name})
        for name, sql in statements.items()
    }
    return {name: files[name] for name in TopologicalSorter(needs).static_order()}
