"""What a registration adds, changes and retires, by source."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import asyncpg

NAMED = 3  # channels that a line names


@dataclass(frozen=True, slots=True)
class Change:
    """What is otherwise of a source or channel: fields of the tag list and their values."""

    old: Mapping[str, Any]
    new: Mapping[str, Any]

    def words(self) -> str:
        """For people: ``unit '°C' → 'K'``."""
        names = sorted(self.old.keys() | self.new.keys())
        return ", ".join(f"{name} {_value(self.old.get(name))} → {_value(self.new.get(name))}" for name in names)


@dataclass(slots=True)
class SourceDifference:
    """One source. A channel that came from another source is changed here: field ``source``."""

    state: str = ""  # added, changed, retired; empty: only channels differ
    change: Change | None = None  # of the source itself
    added: int = 0  # channels, those too that were retired and came back
    first_added: Sequence[str] = ()
    changed: dict[str, Change] = field(default_factory=dict)
    retired: list[str] = field(default_factory=list)

    def words(self) -> str:
        """In a line: counts and the first few names."""
        said = [self.state + (f" ({self.change.words()})" if self.change else "")] if self.state else []
        said += [
            _listed("added", self.added, self.first_added),
            _listed("changed", len(self.changed), (f"{n}: {c.words()}" for n, c in self.changed.items())),
        ]
        return "; ".join(part for part in (*said, _listed("retired", len(self.retired), self.retired)) if part)


@dataclass(frozen=True, slots=True)
class Difference:
    """Of a registration: only sources of which something differs, by name."""

    sources: Mapping[str, SourceDifference]
    renamed: Mapping[str, str] = field(default_factory=dict)  # added channel → the retired one that read the same

    def lines(self) -> Iterator[str]:
        """For people, a line a source; none where nothing changed. Then channels that look renamed."""
        for name, source in sorted(self.sources.items()):
            yield f"source {name}: {source.words()}"
        for new, old in list(self.renamed.items())[:NAMED]:
            yield f"{new} reads what {old} did: `plantlog rename {old} {new}`, then `plantlog up`, keeps its history"
        if len(self.renamed) > NAMED:
            yield f"likewise {len(self.renamed) - NAMED:,} more of the added channels read what retired ones did"


def difference(
    sources: Iterable[asyncpg.Record],
    channels: Iterable[asyncpg.Record],
    added: Iterable[asyncpg.Record],
    same: Iterable[asyncpg.Record],
) -> Difference:
    """From sections ``source_differences``, ``differences``, ``added`` and ``reads_the_same``."""
    found: dict[str, SourceDifference] = {}
    for row in sources:
        change = change_of(row) if row["what"] == "changed" else None
        found[row["name"]] = SourceDifference(row["what"], change)
    for row in added:
        source = found.setdefault(row["source"], SourceDifference())
        source.added, source.first_added = row["n"], row["first"]
    for row in channels:
        source = found.setdefault(row["source"], SourceDifference())
        if row["what"] == "changed":
            source.changed[row["name"]] = change_of(row)
        elif row["what"] == "retired":
            source.retired.append(row["name"])
    return Difference(found, {row["added"]: row["retired"] for row in same})


def change_of(row: asyncpg.Record) -> Change:
    """What differs between ``old`` and ``new`` of a row, JSON objects both."""
    old, new = (_flat(json.loads(row[side])) for side in ("old", "new"))
    differing = [name for name in old.keys() | new.keys() if old.get(name) != new.get(name)]
    return Change({n: old[n] for n in differing if n in old}, {n: new[n] for n in differing if n in new})


def _flat(facts: dict[str, Any]) -> dict[str, Any]:
    return {**{name: value for name, value in facts.items() if name != "attributes"}, **facts.get("attributes", {})}


def _value(value: Any) -> str:
    if value is None or value == "":
        return "none"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _listed(what: str, n: int, names: Iterable[str]) -> str:
    """How many, and the first names."""
    if not n:
        return ""
    more = " …" if n > NAMED else ""
    return f"{n:,} channel{'' if n == 1 else 's'} {what} ({', '.join(islice(names, NAMED))}{more})"
