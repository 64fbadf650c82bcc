"""Changes of a registration by source: channels added, changed and retired."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import asyncpg

from core.config.base import fields_of
from core.config.sources import ModbusSource, ModbusTag, OpcuaTag, PushTag
from core.errors import OperationError

MAX_NAMES = 3  # channels that a line names
# Of what a definition lacks where it is the default (``definitions.py``).
_DEFAULTS = {
    name: field.default for kind in (OpcuaTag, PushTag, ModbusTag) for name, field in fields_of(kind).items()
} | {"unit_id": fields_of(ModbusSource)["unit_id"].default}


@dataclass(frozen=True, slots=True)
class Change:
    """Changed fields of a source or channel, with old and new values."""

    old: Mapping[str, Any]
    new: Mapping[str, Any]

    def describe(self) -> str:
        """The change in words: ``unit '°C' → 'K'``."""
        names = sorted(self.old.keys() | self.new.keys())
        return ", ".join(f"{name} {_value(self.old, name)} → {_value(self.new, name)}" for name in names)


@dataclass(slots=True)
class SourceDifference:
    """One source. A channel that came from another source is changed here: field ``source``."""

    state: str = ""  # added, changed, retired; empty: only channels differ
    change: Change | None = None  # of the source itself
    added: int = 0  # channels, those too that were retired and came back
    first_added: Sequence[str] = ()
    changed: dict[str, Change] = field(default_factory=dict)
    retired: list[str] = field(default_factory=list)

    def describe(self) -> str:
        """Describe it in a line: counts and the first few names."""
        parts = [self.state + (f" ({self.change.describe()})" if self.change else "")] if self.state else []
        parts += [
            _format_names("added", self.added, self.first_added),
            _format_names("changed", len(self.changed), (f"{n}: {c.describe()}" for n, c in self.changed.items())),
        ]
        return "; ".join(part for part in (*parts, _format_names("retired", len(self.retired), self.retired)) if part)


@dataclass(frozen=True, slots=True)
class Redefinitions:
    """Tags that mean something else now, and what was decided."""

    continued: Sequence[str] = ()  # channels that go on
    replaced: Sequence[str] = ()  # channels that give way to new ones
    undecided: Sequence[str] = ()
    problem: str = ""  # what to do about those in doubt, as text; empty: there are none
    aside: Mapping[str, str] = field(default_factory=dict, compare=False)  # replaced → its name from now on, with time


@dataclass(frozen=True, slots=True)
class Difference:
    """Changes of a registration, by name of the changed sources."""

    sources: Mapping[str, SourceDifference]
    renamed: Mapping[str, str] = field(default_factory=dict)  # added channel → the retired one that read the same
    redefinitions: Redefinitions = Redefinitions()

    def counts(self) -> dict[str, int]:
        """Counts of channels added, retired, moved, changed otherwise, and of sources that differ."""
        sources = self.sources.values()
        moved = sum("source" in change.new for source in sources for change in source.changed.values())
        return {
            "added": sum(source.added for source in sources),
            "retired": sum(len(source.retired) for source in sources),
            "moved": moved,
            "changed": sum(len(source.changed) for source in sources) - moved,
            "sources": sum(bool(source.state) for source in sources),
        }

    def check(self, expected: Difference | None) -> None:
        """Raise OperationError if this is not what was ``expected`` (None: anything), or if tags are in doubt."""
        if expected is not None and self != expected:
            raise OperationError(
                "the plan is stale: sources or channels in the database were changed since it was shown, as by "
                "another `plantlog config apply`, `up` or `rename`. Nothing was applied: repeat the command"
            )
        if self.redefinitions.problem:
            raise OperationError(self.redefinitions.problem)

    def lines(self) -> Iterator[str]:
        """The difference in lines, one a source; none where nothing changed. Then those renamed, or that give way."""
        for name, source in sorted(self.sources.items()):
            yield f"source {name}: {source.describe()}"
        for new, old in list(self.renamed.items())[:MAX_NAMES]:
            command = f"plantlog config rename {old} {new}"
            yield f"{new} has the address of retired {old}: `{command}`, then `up`, keeps its history"
        if len(self.renamed) > MAX_NAMES:
            yield f"{len(self.renamed) - MAX_NAMES:,} more added channels have the addresses of retired ones"
        aside = self.redefinitions.aside
        for name, retired in islice(aside.items(), MAX_NAMES):
            yield f"{name}: the old channel is retired as {retired}"
        if len(aside) > MAX_NAMES:
            yield f"{len(aside) - MAX_NAMES:,} more old channels are retired as NAME.until-…"


def difference(
    sources: Iterable[asyncpg.Record],
    channels: Iterable[asyncpg.Record],
    added: Iterable[asyncpg.Record],
    same: Iterable[asyncpg.Record],
    redefinitions: Redefinitions,
) -> Difference:
    """Difference from sections ``select_source_differences``, ``_differences``, ``_added`` and ``_same_address``."""
    by_source: dict[str, SourceDifference] = {}
    for row in sources:
        change = change_of(row) if row["change"] == "changed" else None
        by_source[row["name"]] = SourceDifference(row["change"], change)
    for row in added:
        source = by_source.setdefault(row["source"], SourceDifference())
        source.added, source.first_added = row["n"], row["first"]
    for row in channels:
        source = by_source.setdefault(row["source"], SourceDifference())
        if row["change"] == "changed":
            source.changed[row["name"]] = change_of(row)
        elif row["change"] == "retired":
            source.retired.append(row["name"])
    return Difference(by_source, {row["added"]: row["retired"] for row in same}, redefinitions)


def change_of(row: asyncpg.Record) -> Change:
    """Change from ``old`` to ``new`` of a row, JSON objects both."""
    old, new = (flat(json.loads(row[side])) for side in ("old", "new"))
    differing = [name for name in old.keys() | new.keys() if old.get(name) != new.get(name)]
    return Change({n: old[n] for n in differing if n in old}, {n: new[n] for n in differing if n in new})


def flat(definition: dict[str, Any]) -> dict[str, Any]:
    """A definition with its attributes beside the columns."""
    return {
        **{name: value for name, value in definition.items() if name != "attributes"},
        **definition.get("attributes", {}),
    }


def _value(definition: Mapping[str, Any], name: str) -> str:
    value = definition.get(name, _DEFAULTS.get(name))
    if value is None or value == "":
        return "none"
    shown = f"{value:.15g}" if isinstance(value, float) else str(value)
    return shown if name in definition else f"{shown} (default)"


def _format_names(change: str, n: int, names: Iterable[str]) -> str:
    """Number of names, and the first ones."""
    if not n:
        return ""
    more = " …" if n > MAX_NAMES else ""
    return f"{n:,} channel{'' if n == 1 else 's'} {change} ({', '.join(islice(names, MAX_NAMES))}{more})"
