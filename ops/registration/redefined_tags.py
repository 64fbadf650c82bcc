"""Tags whose definition changed under the same name. Only an operator can say what that means.

Either the measured quantity is the same (its id and history continue, and the change is recorded), or it is another
one (a new channel). What only affects how it is read or shown (``definitions.PRESENTATION``) does not count.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import asyncpg

from core.errors import OperationError
from core.formatting import count
from ops.registration.definitions import PRESENTATION
from ops.registration.difference import Change, Redefinitions, change_of, flat
from ops.registration.rename import superseded_name

_FIELDS_SET_LATER = frozenset({"unit", "unit_id", "wraps_at"})  # the first one contradicts nothing


@dataclass(frozen=True, slots=True)
class TagDecisions:
    """The operator's decisions for such tags: names, or patterns with ``*``."""

    same_quantity: Sequence[str] = ()
    new_channel: Sequence[str] = ()


def redefinitions(
    channels: Sequence[asyncpg.Record],
    moved: Mapping[str, str],
    renamed: Iterable[asyncpg.Record],
    decisions: TagDecisions,
) -> Redefinitions:
    """The tags whose meaning changed, with every one that is in doubt.

    ``channels``: section ``select_differences``; ``moved``: former source → the source that has its end point now
    (no other device); ``renamed``: section ``select_renamed``.
    """
    continued, replaced = [], []
    undecided: dict[str, Change] = {}
    changes = {row["name"]: change_of(row) for row in channels if row["old"] is not None and row["new"] is not None}
    for name, change_of_tag in changes.items():
        change = meaning_change(change_of_tag, moved)
        if change is None:
            continue
        if _matches(name, decisions.new_channel):
            replaced.append(name)
        elif _matches(name, decisions.same_quantity):
            continued.append(name)
        else:
            undecided[name] = change
    renamed_away = [row for row in renamed if not _matches(row["name"], decisions.new_channel)]
    lines = []
    if undecided:
        tags = count(len(undecided), "tag")
        have = "has" if len(undecided) == 1 else "have"
        lines += [
            f"{tags} of the configuration {have} a new definition under an old name:",
            *(f"  {name}: {change.describe()}" for name, change in undecided.items()),
            *(
                f"{tag} and {other} have exchanged their addresses. If only the names were exchanged: "
                f"`plantlog config rename {tag} {other} --exchange` gives each channel the name of the other; then "
                "repeat this command."
                for tag, other in _exchanged(row for row in channels if row["name"] in undecided)
            ),
            "If a tag still measures the same quantity, use --same-quantity NAME: the channel continues and the change "
            "is recorded. If it measures another quantity, give it a new name, or use --new-channel NAME to retire the "
            "old channel under another name. NAME may be a pattern with *.",
        ]
    if renamed_away:
        lines += [
            f"{count(len(renamed_away), 'tag')} of the configuration with a name that was renamed:",
            *(f"  {row['name']}: renamed to {row['now']} at {row['since']:%Y-%m-%d %H:%M} UTC" for row in renamed_away),
            "Put the new name into the tag list, or use --new-channel NAME for a new channel with the old name.",
        ]
    in_doubt = (*undecided, *(row["name"] for row in renamed_away))
    aside = {name: superseded_name(name) for name in replaced}
    return Redefinitions(continued, replaced, in_doubt, "\n".join(lines), aside)


def check_decisions(decisions: TagDecisions, names: Collection[str]) -> None:
    """Raise OperationError for a decision that is for none of the tags ``names``."""
    chosen = {"--same-quantity": decisions.same_quantity, "--new-channel": decisions.new_channel}
    for option, patterns in chosen.items():
        for pattern in patterns:
            if pattern not in names and not any(_matches(name, [pattern]) for name in names):
                raise OperationError(f"{option} {pattern}: the configuration has no tag of this name")


def _exchanged(rows: Iterable[asyncpg.Record]) -> Iterator[tuple[str, str]]:
    """Pairs of tags that have exchanged their definitions: an edit that renames them crosswise."""
    meanings = {row["name"]: (_meaning(row["old"]), _meaning(row["new"])) for row in rows}
    names_of: dict[str, list[str]] = {}
    for name, (old, _) in meanings.items():
        names_of.setdefault(old, []).append(name)
    for name, (old, new) in meanings.items():
        yield from ((name, other) for other in names_of.get(new, ()) if name < other and meanings[other][1] == old)


def _meaning(definition: str) -> str:
    """The part of a definition, a JSON object, that says what the values mean."""
    return json.dumps(
        {key: value for key, value in sorted(flat(json.loads(definition)).items()) if key not in PRESENTATION}
    )


def meaning_change(change: Change, moved: Mapping[str, str]) -> Change | None:
    """The part of a change that makes values mean something else; None: there is none."""
    keys = [key for key in change.old.keys() | change.new.keys() if _changes_meaning(key, change, moved)]
    if not keys:
        return None
    return Change(
        {k: change.old[k] for k in keys if k in change.old}, {k: change.new[k] for k in keys if k in change.new}
    )


def _changes_meaning(key: str, change: Change, moved: Mapping[str, str]) -> bool:
    if key in PRESENTATION:
        return False
    old: Any = change.old.get(key)
    if key in _FIELDS_SET_LATER and old in (None, ""):
        return False
    return not (key == "source" and moved.get(old) == change.new.get(key))


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
