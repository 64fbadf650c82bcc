"""What a registration adds, changes and retires, by source."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import asyncpg

_NAMED = 3  # channels that a line names
_READ_OFTEN = {"interval", "expected_interval", "stale_after"}  # attributes that don't say what is read


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
    added: list[str] = field(default_factory=list)  # channels, those too that were retired and came back
    changed: dict[str, Change] = field(default_factory=dict)
    retired: list[str] = field(default_factory=list)

    def words(self) -> str:
        """In a line: counts and the first few names."""
        said = [self.state + (f" ({self.change.words()})" if self.change else "")] if self.state else []
        said += [
            _listed("added", self.added),
            _listed("changed", [f"{n}: {c.words()}" for n, c in self.changed.items()]),
        ]
        return "; ".join(part for part in (*said, _listed("retired", self.retired)) if part)


@dataclass(frozen=True, slots=True)
class Difference:
    """Of a registration: only sources of which something differs, by name."""

    sources: Mapping[str, SourceDifference]
    renamed: Mapping[str, str] = field(default_factory=dict)  # added channel → the retired one that read the same

    def new_names(self) -> list[str]:
        """Channels that are added, or come back."""
        return [name for source in self.sources.values() for name in source.added]

    def lines(self) -> Iterator[str]:
        """For people, a line a source; none where nothing changed. Then channels that look renamed."""
        for name, source in sorted(self.sources.items()):
            yield f"source {name}: {source.words()}"
        for new, old in list(self.renamed.items())[:_NAMED]:
            yield f"{new} reads what {old} did: `plantlog rename {old} {new}`, then `plantlog up`, keeps its history"
        if len(self.renamed) > _NAMED:
            yield f"likewise {len(self.renamed) - _NAMED:,} more of the added channels read what retired ones did"


def difference(sources: Sequence[asyncpg.Record], channels: Sequence[asyncpg.Record]) -> Difference:
    """From sections ``source_differences`` and ``differences``."""
    found: dict[str, SourceDifference] = {}
    for row in sources:
        change = change_of(row) if row["what"] == "changed" else None
        found[row["name"]] = SourceDifference(row["what"], change)
    for row in channels:
        source = found.setdefault(row["source"], SourceDifference())
        if row["what"] == "changed":
            source.changed[row["name"]] = change_of(row)
        elif row["what"] == "retired":
            source.retired.append(row["name"])
        else:
            source.added.append(row["name"])
    return Difference(found, _renamed(channels))


def _renamed(channels: Sequence[asyncpg.Record]) -> dict[str, str]:
    """Added channel → the one that is retired and read the same; where it is one of each."""
    added, retired = (_by_place(channels, what) for what in ("added", "retired"))
    return {
        names[0]: retired[place][0] for place, names in added.items() if len(names) == len(retired.get(place, ())) == 1
    }


def _by_place(channels: Sequence[asyncpg.Record], what: str) -> dict[str, list[str]]:
    """What a channel reads, its source, address and how → names."""
    found: dict[str, list[str]] = {}
    for row in channels:
        if row["what"] == what:
            facts = json.loads(row["new"] or row["old"])
            how = {name: value for name, value in facts["attributes"].items() if name not in _READ_OFTEN}
            place = json.dumps([facts["source"], facts["address"], how], sort_keys=True)
            found.setdefault(place, []).append(row["name"])
    return found


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


def _listed(what: str, names: Sequence[str]) -> str:
    if not names:
        return ""
    more = " …" if len(names) > _NAMED else ""
    return f"{len(names):,} channel{'' if len(names) == 1 else 's'} {what} ({', '.join(names[:_NAMED])}{more})"
