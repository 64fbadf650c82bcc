"""Differences of a configuration's files, as ``diff -u`` shows them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import unified_diff
from io import StringIO


@dataclass(frozen=True, slots=True)
class Side:
    """The files of a revision, or those that are there now."""

    label: str
    files: Mapping[str, bytes]  # name → content


def differences(old: Side, new: Side) -> dict[str, str]:
    """Name → what differs, of each file that differs. A file that one side lacks is ``/dev/null`` there."""
    names = sorted(old.files.keys() | new.files.keys())
    differing = (name for name in names if old.files.get(name) != new.files.get(name))
    return {name: "".join(_lines(name, old, new)) for name in differing}


def _lines(name: str, old: Side, new: Side) -> Iterator[str]:
    (before, former), (after, latter) = (
        (_text(side.files.get(name, b"")), name if name in side.files else "/dev/null") for side in (old, new)
    )
    for line in unified_diff(before, after, former, latter, old.label, new.label):
        yield line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"


def _text(content: bytes) -> list[str]:
    """Lines with their ends, which are line feeds alone; what is not UTF-8 as escapes."""
    return list(StringIO(content.decode(errors="backslashreplace"), newline="\n"))
