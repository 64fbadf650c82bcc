"""Path of a channel in a variable's value: ``Motor.Speed``, ``Temperatures[3]``, ``[1,2]``, ``[3].Phases[0].Current``.

Members of structures have their names, with dots between them. Elements of arrays have their indexes in brackets, one
for each dimension, from 0. In a tag list, the indexes at the end of a path have a column of their own.
"""

from __future__ import annotations

import re
from typing import TypeAlias

Indexes: TypeAlias = tuple[int, ...]  # of an element, one for each dimension
Path: TypeAlias = tuple[str | Indexes, ...]

_NUMBER = "(?:0|[1-9][0-9]{0,8})"
_INDEX = rf"{_NUMBER}(?:,{_NUMBER})*"
_NAME = r"[^.\[\]]+"
INDEX_PATTERN = rf"^{_INDEX}$"
MEMBER_PATTERN = rf"^((\[{_INDEX}\]\.)?{_NAME}((\[{_INDEX}\])?\.{_NAME})*)?$"

_PATH = re.compile(rf"(?!\.)(?:{_NAME})?(?:\[{_INDEX}\])?(?:\.{_NAME}(?:\[{_INDEX}\])?)*")
_STEP = re.compile(rf"\[({_INDEX})\]|{_NAME}")


def joined(member: str, index: str | None) -> str:
    """A path, by the columns of a tag list."""
    return member if index is None else f"{member}[{index}]"


def parse(text: str) -> Path:
    """Parse a path; empty: the value itself. Raises ValueError."""
    if _PATH.fullmatch(text) is None:
        raise ValueError("not a path")
    return tuple(parse_index(step[1]) if step[1] else step[0] for step in _STEP.finditer(text))


def split(path: Path) -> tuple[Indexes, Path]:
    """The element that a path begins with, empty if it begins with a member; and the rest."""
    return (path[0], path[1:]) if path and isinstance(path[0], tuple) else ((), path)


def parse_index(text: str) -> Indexes:
    """The indexes of a legal ``1,2``."""
    return tuple(map(int, text.split(",")))


def flat_index(indexes: Indexes, lengths: Indexes) -> int | None:
    """Index of an element among all of an array, the last dimension first (OPC 10000-6, 5.2.2.16).

    None: an array of these ``lengths`` does not have it.
    """
    if len(indexes) != len(lengths):
        return None
    position = 0
    for index, length in zip(indexes, lengths, strict=True):
        if index >= length:
            return None
        position = position * length + index
    return position
