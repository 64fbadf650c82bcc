"""Tags that mean something else than before under the same name: nobody but the plant's people can say what that is.

Either the measured quantity is the same (then its id and history go on, and the change is on record), or it is another
one (then it is a new channel). What only says how a value is read or shown (range, deadband, description, intervals,
alarm limits, class of retention) is no change of meaning.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import asyncpg

from ingest.errors import OperationError
from ops.difference import Change, change_of
from ops.words import count

_SHOWN_OR_READ = frozenset(
    {"lo", "hi", "deadband", "description", "retention", "interval", "expected_interval", "stale_after"}
)
_FIRST_SAID = frozenset({"unit", "unit_id"})  # nothing was claimed before: the first one contradicts nothing


@dataclass(frozen=True, slots=True)
class Choice:
    """What ``up`` was told of such tags: names, or patterns with ``*``."""

    same_quantity: Sequence[str] = ()
    new_channel: Sequence[str] = ()


def chosen(
    channels: Iterable[asyncpg.Record], moved: Mapping[str, str], renamed: Iterable[asyncpg.Record], choice: Choice
) -> list[str]:
    """Names whose channels give way to new ones. Raises OperationError with every tag that is in doubt.

    ``channels``: section ``differences``; ``moved``: names of sources whose end point another source has now → its
    name, which is no other device; ``renamed``: section ``renamed``.
    """
    doubtful, anew = {}, []
    for row in channels:
        if row["old"] is None or row["new"] is None:
            continue
        change = meaning(change_of(row), moved)
        if change is None:
            continue
        if _named(row["name"], choice.new_channel):
            anew.append(row["name"])
        elif not _named(row["name"], choice.same_quantity):
            doubtful[row["name"]] = change.words()
    said = []
    if doubtful:
        tags = count(len(doubtful), "tag")
        means = "means" if len(doubtful) == 1 else "mean"
        said += [
            f"{tags} of the configuration {means} something else than before:",
            *(f"  {name}: {words}" for name, words in doubtful.items()),
            "Where it is the same measured quantity: --same-quantity NAME, and its channel goes on, with the change on "
            "record. Where it is another one: a name of its own, or --new-channel NAME, which retires the old channel "
            "under another name. NAME may be a pattern with *.",
        ]
    former = [row for row in renamed if not _named(row["name"], choice.new_channel)]
    if former:
        said += [
            f"{count(len(former), 'tag')} of the configuration under a name that was given up:",
            *(f"  {row['name']}: called {row['now']} since {row['since']:%Y-%m-%d %H:%M} UTC" for row in former),
            "Write the new name into the tag list, or say --new-channel NAME for a new channel of the old name.",
        ]
    if said:
        raise OperationError("\n".join(said))
    return anew


def meaning(change: Change, moved: Mapping[str, str]) -> Change | None:
    """The part of a change that makes values mean something else; None: there is none."""
    keys = [key for key in change.old.keys() | change.new.keys() if _means(key, change, moved)]
    if not keys:
        return None
    return Change(
        {k: change.old[k] for k in keys if k in change.old}, {k: change.new[k] for k in keys if k in change.new}
    )


def _means(key: str, change: Change, moved: Mapping[str, str]) -> bool:
    if key in _SHOWN_OR_READ or key.startswith("alarm_"):
        return False
    old: Any = change.old.get(key)
    if key in _FIRST_SAID and old in (None, ""):
        return False
    return not (key == "source" and moved.get(old) == change.new.get(key))


def _named(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
