"""Plan of what ``apply`` would change, shown before. It is stale if anything was changed meanwhile."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from core.config.base import fields_of
from core.config.explain import field_legal
from core.config.model import Plant, PlantOptions
from core.config.quantities import RETENTION_LEGAL
from core.config.reference import value_text
from core.config.settings import reconnects
from core.config.snapshot import latest_number, plant_in_force
from core.database import connected, database_errors
from core.errors import OperationError
from core.formatting import count
from core.paths import State
from core.users.directory import UserDirectory, closed_viewer
from ops.appliance import programs
from ops.appliance.supervisor import Supervisor
from ops.deployment import Deployment
from ops.registration.difference import Change, Difference
from ops.registration.redefined_tags import TagDecisions
from ops.registration.register import preview

_IN_TAG_LIST = {"tags", "name", "kind", "address"}  # of a source: the difference has them
_URL_SECRETS = re.compile(r"(?<=://)[^/?#\s]+(?=@)|(?<=\?)\S+")  # user and password; query


@dataclass(frozen=True, slots=True)
class OptionChange:
    """Old and new value of an option, as programs read it (None: none) and as it is written in the file."""

    values: tuple[Any, Any]
    texts: tuple[str, str]


@dataclass(frozen=True, slots=True)
class Plan:
    """The difference between the configuration files and what runs."""

    number: int | None  # of the configuration in force
    plant: Plant  # what the files say
    digests: Mapping[str, str]  # of the files, by path
    difference: Difference
    options: Mapping[str, OptionChange]
    restarted: Sequence[str]  # processes
    stopped: Sequence[str]
    started: Sequence[str]
    reconnected: Sequence[str]  # sources
    closed: str | None = None  # why nobody can use the viewer then

    def __bool__(self) -> bool:
        """Return whether there is anything to apply."""
        changes = self.difference.sources, self.options, self.restarted, self.stopped, self.started
        return any(map(bool, changes)) or bool(self.difference.redefinitions.undecided)

    @property
    def tags_only(self) -> bool:
        """Return whether it changes tags and nothing else."""
        others = self.options, self.restarted, self.stopped, self.started, self.reconnected
        return not any(others) and not any(source.state for source in self.difference.sources.values())

    def check(self, state: State, digests: Mapping[str, str | None]) -> None:
        """Raise OperationError if files, or the configuration in force, were changed since."""
        paths = self.digests.keys() | digests.keys()
        stale = sorted(path for path in paths if self.digests.get(path) != digests.get(path))
        reasons = [f"{path} was changed" for path in stale]
        if latest_number(state.root) != self.number:
            reasons.append("another configuration was applied")
        if reasons:
            raise OperationError(
                f"the plan is stale: {'; '.join(reasons)} since it was shown. Nothing was applied: repeat the command"
            )

    def counts(self) -> dict[str, int]:
        """Counts of channels added, retired, moved, changed otherwise, and of sources and options that differ."""
        return {**self.difference.counts(), "options": len(self.options)}

    def lines(self) -> Iterator[str]:
        """Every change, a line each."""
        redefined, renamed = self.difference.redefinitions, self.difference.renamed
        for name, source in sorted(self.difference.sources.items()):
            if source.state:
                details = f" ({source.change.describe()})" if source.change else ""
                yield f"source {name}: {source.state}{details}"
            for channel in source.first_added:
                former = f" (reads what {renamed[channel]} read)" if channel in renamed else ""
                yield f"+ {channel}: added to {name}{former}"
            for channel in source.retired:
                yield f"- {channel}: retired from {name}"
            for channel, change in source.changed.items():
                yield f"~ {channel}: {change.describe()}{_decision(channel, redefined.undecided, redefined.continued)}"
        yield from (f"~ {channel}: the old channel is retired as {channel}.until-…" for channel in redefined.replaced)
        yield from (f"{name}: {' → '.join(change.texts)}" for name, change in self.options.items())

    def effects(self) -> Iterator[str]:
        """Effects: what is interrupted, and hints."""
        words = {"restarts": self.restarted, "stops": self.stopped, "starts": self.started}
        for verb, names in words.items():
            if names:
                yield f"{verb}: {', '.join(names)}"
        if self.reconnected:
            yield f"connects again: {', '.join(self.reconnected)}"
        if not self.restarted and not self.stopped and not self.reconnected:
            yield "restarts: nothing; living connections follow the change"
        if self.closed is not None:
            yield self.closed
        if self.difference.renamed:
            new, old = next(iter(self.difference.renamed.items()))
            n_renamed = len(self.difference.renamed)
            may = "may be a renamed one" if n_renamed == 1 else "may be renamed ones"
            command = f"plantlog config rename {old} {new}"
            yield f"{count(n_renamed, 'added channel')} {may}: `{command}` before this keeps the history"

    def to_json(self) -> dict[str, Any]:
        """The whole plan."""
        redefined = self.difference.redefinitions
        return {
            "configuration": self.number,
            "counts": self.counts(),
            "sources": {
                name: {
                    "state": source.state or None,
                    "change": None if source.change is None else _change(source.change),
                    "added": list(source.first_added),
                    "retired": source.retired,
                    "changed": {channel: _change(change) for channel, change in source.changed.items()},
                }
                for name, source in sorted(self.difference.sources.items())
            },
            "renamed": {old: new for new, old in self.difference.renamed.items()},
            "undecided": list(redefined.undecided),
            "same_quantity": list(redefined.continued),
            "new_channel": list(redefined.replaced),
            "options": {name: list(change.values) for name, change in self.options.items()},
            "restarts": list(self.restarted),
            "stops": list(self.stopped),
            "starts": list(self.started),
            "reconnects": list(self.reconnected),
            "closed": self.closed,
        }


async def make_plan(
    deployment: Deployment, plant: Plant, digests: Mapping[str, str], state: State, decisions: TagDecisions
) -> Plan:
    """The plan for a configuration that was read from the files with these ``digests``."""
    number, before = latest_number(state.root), plant_in_force(state.root)
    with database_errors():
        async with connected(state.dsn("owner"), "plantlog apply") as connection:
            difference = await preview(connection, plant, state, decisions)
    own_database = not state.has_external_database
    new_programs = programs.all_programs(deployment, plant, state, own_database=own_database, planned=True)
    processes = Supervisor(state).restarts(new_programs)
    sources = {source.name: source for source in before.sources}
    reconnected = [s.name for s in plant.sources if s.name in sources and reconnects(sources[s.name], s)]
    options = option_changes(before, plant)
    closed = closed_viewer(plant.viewer.host, UserDirectory(state.root).users())
    return Plan(number, plant, digests, difference, options, *processes, reconnected, closed)


def option_changes(before: Plant, now: Plant) -> dict[str, OptionChange]:
    """Changes by option, of tables and of sources that both plants have; possible secrets in URLs are masked."""
    old, new = dict(_options(before)), dict(_options(now))
    sources = {s.name for s in before.sources} ^ {s.name for s in now.sources}
    return {
        str(name): OptionChange(
            (_masked(old.get(name)), _masked(new.get(name))), (_written(name, old), _written(name, new))
        )
        for name in sorted(old.keys() | new.keys())
        if old.get(name) != new.get(name) and not (name.table == "source" and name.key in sources)
    }


@dataclass(frozen=True, slots=True, order=True)
class _Option:
    table: str
    key: str  # of a source or a retention class
    option: str
    field: FieldInfo = dataclass_field(compare=False)

    def __str__(self) -> str:
        return f"[{self.table}] {f'{self.key} ' if self.key else ''}{self.option}"


def _options(plant: Plant) -> Iterator[tuple[_Option, Any]]:
    yield _Option("plant", "", "name", fields_of(PlantOptions)["name"]), plant.name
    for table in fields_of(Plant).keys() - {"name", "sources"}:
        value = getattr(plant, table)
        for key, options in value.items() if isinstance(value, Mapping) else (("", value),):
            yield from _table(table, key, options, set())
    for source in plant.sources:
        yield from _table("source", source.name, source, _IN_TAG_LIST)


def _table(table: str, key: str, options: BaseModel | None, exclude: set[str]) -> Iterator[tuple[_Option, Any]]:
    if options is not None:
        values = options.model_dump(mode="json", exclude=exclude)
        fields = fields_of(type(options))
        yield from ((_Option(table, key, option, fields[option]), value) for option, value in values.items())


def _masked(value: Any) -> Any:
    return _URL_SECRETS.sub("***", value) if isinstance(value, str) and "://" in value else value


def _decision(channel: str, undecided: Sequence[str], continued: Sequence[str]) -> str:
    if channel in undecided:
        return " (another meaning? --same-quantity or --new-channel)"
    return " (the same quantity)" if channel in continued else ""


def _change(change: Change) -> dict[str, list[Any]]:
    names = sorted(change.old.keys() | change.new.keys())
    return {name: [change.old.get(name), change.new.get(name)] for name in names}


def _written(name: _Option, options: Mapping[_Option, Any]) -> str:
    value = options.get(name)
    if value is None and (name not in options or field_legal(name.option, name.field) != RETENTION_LEGAL):
        return "none"
    return value_text(name.option, name.field, _masked(value))
