"""Tags whose definition changed under the same name. Only an operator can say what that means.

Either the measured quantity is the same (its id and history continue, and the change is recorded), or it is another
one (a new channel). Fields that only affect reading or display (range, deadband, description, intervals,
alarm limits, retention class) do not count.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import asyncpg

from ingest.errors import OperationError
from ops.formatting import count
from ops.registration.difference import Change, change_of

_PRESENTATION_FIELDS = frozenset(
    {"lo", "hi", "deadband", "description", "retention", "interval", "expected_interval", "stale_after"}
)
_FIELDS_SET_LATER = frozenset({"unit", "unit_id"})  # nothing was claimed before: the first one contradicts nothing


@dataclass(frozen=True, slots=True)
class TagDecisions:
    """The operator's decisions for such tags: names, or patterns with ``*``."""

    same_quantity: Sequence[str] = ()
    new_channel: Sequence[str] = ()


def channels_to_replace(
    channels: Iterable[asyncpg.Record],
    moved: Mapping[str, str],
    renamed: Iterable[asyncpg.Record],
    decisions: TagDecisions,
) -> list[str]:
    """Names whose channels give way to new ones. Raises OperationError with every tag that is in doubt.

    ``channels``: section ``select_differences``; ``moved``: former source → the source that has its end point now
    (no other device); ``renamed``: section ``select_renamed``.
    """
    undecided, replaced = {}, []
    for row in channels:
        if row["old"] is None or row["new"] is None:
            continue
        change = meaning_change(change_of(row), moved)
        if change is None:
            continue
        if _matches(row["name"], decisions.new_channel):
            replaced.append(row["name"])
        elif not _matches(row["name"], decisions.same_quantity):
            undecided[row["name"]] = change.describe()
    lines = []
    if undecided:
        tags = count(len(undecided), "tag")
        have = "has" if len(undecided) == 1 else "have"
        lines += [
            f"{tags} of the configuration {have} a new definition under an old name:",
            *(f"  {name}: {words}" for name, words in undecided.items()),
            "If a tag still measures the same quantity, use --same-quantity NAME: the channel continues and the change "
            "is recorded. If it measures another quantity, give it a new name, or use --new-channel NAME to retire the "
            "old channel under another name. NAME may be a pattern with *.",
        ]
    renamed_away = [row for row in renamed if not _matches(row["name"], decisions.new_channel)]
    if renamed_away:
        lines += [
            f"{count(len(renamed_away), 'tag')} of the configuration with a name that was renamed:",
            *(f"  {row['name']}: renamed to {row['now']} at {row['since']:%Y-%m-%d %H:%M} UTC" for row in renamed_away),
            "Put the new name into the tag list, or use --new-channel NAME for a new channel with the old name.",
        ]
    if lines:
        raise OperationError("\n".join(lines))
    return replaced


def meaning_change(change: Change, moved: Mapping[str, str]) -> Change | None:
    """The part of a change that makes values mean something else; None: there is none."""
    keys = [key for key in change.old.keys() | change.new.keys() if _changes_meaning(key, change, moved)]
    if not keys:
        return None
    return Change(
        {k: change.old[k] for k in keys if k in change.old}, {k: change.new[k] for k in keys if k in change.new}
    )


def _changes_meaning(key: str, change: Change, moved: Mapping[str, str]) -> bool:
    if key in _PRESENTATION_FIELDS or key.startswith("alarm_"):
        return False
    old: Any = change.old.get(key)
    if key in _FIELDS_SET_LATER and old in (None, ""):
        return False
    return not (key == "source" and moved.get(old) == change.new.get(key))


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
