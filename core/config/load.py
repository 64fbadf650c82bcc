"""Load ``plant.toml`` and its tag lists, and validate all of it before anything starts."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

from core.config import contradictions, repositories
from core.config.addresses import modbus_address
from core.config.document import Document, files_of
from core.config.explain import did_you_mean, shown
from core.config.locate import Key
from core.config.modbus_tls import tls_options
from core.config.model import TABLES, NotifyOptions, Plant, PlantOptions, RetentionOptions
from core.config.sources import (
    DEFAULT_CLASS,
    ModbusSource,
    ModbusTag,
    OpcuaSource,
    OpcuaTag,
    PushSource,
    PushTag,
    Source,
    Tag,
)
from core.config.tags import read_tags
from core.config.templates import TagLocation
from core.errors import ConfigError, OperationError, Problem

_Locations: TypeAlias = dict[str, tuple[Path, TagLocation]]  # by name or address
_KINDS: dict[str, tuple[type[Source], type[OpcuaTag | ModbusTag | PushTag]]] = {
    "modbus": (ModbusSource, ModbusTag),
    "opcua": (OpcuaSource, OpcuaTag),
    "push": (PushSource, PushTag),
}
_TABLE_NAMES = ("plant", "source", "notify", "retention", *TABLES)


def load(path: Path) -> Plant:
    """The plant that ``path`` describes. Raises ConfigError with every problem, not just the first."""
    return load_with_digests(path)[0]


def load_opcua_source(path: Path, name: str) -> OpcuaSource:
    """The options of one source, without its tag list and everything else in ``path``, which may not exist yet.

    Raises ConfigError for problems in these options, and OperationError if there is no such source.
    """
    loader = _Loader(path)
    source = loader.opcua_source(name)
    if loader.problems or source is None:
        raise ConfigError(loader.problems)
    return source[0]


def load_opcua_tags(path: Path, name: str) -> tuple[OpcuaSource, Path, list[tuple[OpcuaTag, TagLocation]]]:
    """Load as :func:`load_opcua_source`, with the tag list: its path, and its tags with their locations."""
    loader = _Loader(path)
    described = loader.opcua_source(name)
    tags = [] if described is None else read_tags(described[1], OpcuaTag, loader.problems)
    if loader.problems or described is None:
        raise ConfigError(loader.problems)
    source, file = described
    return source.model_copy(update={"tags": tuple(tag for tag, _ in tags)}), file, tags


def load_token_files(path: Path) -> dict[str, Path]:
    """The token file of each push source, which may not exist yet; nothing else is checked. Raises ConfigError."""
    loader = _Loader(path)
    files = loader.token_files()
    if loader.problems:
        raise ConfigError(loader.problems)
    return files


def load_with_digests(path: Path) -> tuple[Plant, dict[str, str]]:
    """Load as :func:`load`, with the SHA-256 of ``path`` and of each tag list, by path."""
    loader = _Loader(path)
    plant = loader.plant()
    if loader.problems or plant is None:
        raise ConfigError(sorted(loader.problems, key=lambda p: (p.file != str(path), p.file, p.line or 0)))
    return plant, loader.digests


def file_digests(path: Path) -> dict[str, str]:
    """The SHA-256 of ``path`` and of each tag list, by path: of all files that can be read, valid or not."""
    loader = _Loader(path)
    loader.plant()
    return loader.digests


class _Loader(Document):
    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._classes: set[str] = {DEFAULT_CLASS}  # of retention
        self._tag_lists: dict[str, int | None] = {}  # where they are → the line of the source that has them

    def plant(self) -> Plant | None:
        content = self.content()
        if content is None:
            return None
        for name in content:
            if name not in _TABLE_NAMES:
                self.problem((name,), "an unknown table", did_you_mean(name, _TABLE_NAMES))
        options: dict[str, Any] = {
            name: self.table((name,), content.get(name, {}), model) for name, model in TABLES.items()
        }
        for option, value, allowed in repositories.between_tables(options["sealing"], options["archive"]):
            self.problem(("archive", option), value, allowed)
        options["notify"] = self._notify(content.get("notify"))
        name = self._plant_name(content.get("plant"))
        options["retention"] = self._retention(content.get("retention", {}))
        sources = self._sources(content.get("source"))
        if self.problems:
            return None
        return Plant.model_construct(name=name, sources=tuple(sources), **options)

    def opcua_source(self, name: str) -> tuple[OpcuaSource, Path] | None:
        """The options of a source, and the path of its tag list, which may not exist yet."""
        content = self.content()
        if content is None:
            return None
        tables = content.get("source")
        kinds = {
            (table["name"], table.get("kind")): index
            for index, table in enumerate(tables if isinstance(tables, list) else ())
            if isinstance(table, dict) and isinstance(table.get("name"), str) and isinstance(table.get("kind"), str)
        }
        index = kinds.get((name, "opcua"))
        if index is None:
            if others := [kind for source, kind in kinds if source == name]:
                raise OperationError(
                    f"source {name} has kind {others[0]}: only kind opcua can be browsed, "
                    "as other devices have no list of what they measure"
                )
            opcua = [source for source, kind in kinds if kind == "opcua"]
            raise OperationError(f"{self.path} has no OPC UA source {name}; it has {', '.join(opcua) or 'none'}")
        table = content["source"][index]
        source = self._options(("source", index), table, OpcuaSource, ())
        return (source, self.path.parent / str(table.get("tags", ""))) if isinstance(source, OpcuaSource) else None

    def token_files(self) -> dict[str, Path]:
        """Token files by source, where they are named."""
        tables = (self.content() or {}).get("source")
        return {
            table["name"]: self.path.parent / table["token_file"]
            for table in (tables if isinstance(tables, list) else ())
            if isinstance(table, dict)
            and table.get("kind") == "push"
            and isinstance(table.get("name"), str)
            and isinstance(table.get("token_file"), str)
        }

    def _plant_name(self, table: Any) -> str:
        if table is None:
            self.problem(("plant",), "nothing", 'a table [plant] with name = "…"')
            return ""
        options = self.table(("plant",), table, PlantOptions)
        return options.name if isinstance(options, PlantOptions) else ""

    def _notify(self, table: Any) -> NotifyOptions | None:
        if table is None:
            return None
        options = self.table(("notify",), table, NotifyOptions)
        if not isinstance(options, NotifyOptions):
            return None
        for name, value, allowed in contradictions.in_notify(options):
            self.problem(("notify", name), value, allowed)
        return options

    def _retention(self, tables: Any) -> dict[str, RetentionOptions]:
        """The tables [retention.CLASS]."""
        classes = {DEFAULT_CLASS: RetentionOptions()}
        if not isinstance(tables, dict):
            self.problem(("retention",), shown(tables), "tables [retention.CLASS]")
            return classes
        self._classes |= set(tables)
        for name, table in tables.items():
            if not isinstance(table, dict):
                self.problem(("retention", name), shown(table), f"a table [retention.{DEFAULT_CLASS}]")
                continue
            options = self.validated(("retention", name), table, RetentionOptions)
            if isinstance(options, RetentionOptions):
                classes[name] = options
                for option, value, allowed in contradictions.in_retention(options):
                    self.problem(("retention", name, option), value, allowed)
        return classes

    def _sources(self, tables: Any) -> list[Source]:
        if not isinstance(tables, list) or not tables or not all(isinstance(table, dict) for table in tables):
            value = "nothing" if tables is None else "a table [source]" if isinstance(tables, dict) else shown(tables)
            self.problem(("source",), value, "one or more tables [[source]]")
            return []
        sources: list[Source] = []
        names: dict[str, int | None] = {}  # source name → line
        channels: _Locations = {}
        lines: dict[str, tuple[ModbusSource, int | None]] = {}  # endpoint of Modbus → its first source, and the line
        for index, table in enumerate(tables):
            name = table.get("name")
            line = self.line(("source", index, "name"))
            if isinstance(name, str) and name in names:
                self.problem(
                    ("source", index, "name"), shown(name), f"a unique name; line {names[name]} already uses it"
                )
            elif isinstance(name, str):
                names[name] = line
            source = self._source(index, table, channels)
            if source is not None:
                sources.append(source)
                if isinstance(source, ModbusSource):
                    self._check_line(index, source, lines)
        return sources

    def _check_line(self, index: int, source: ModbusSource, lines: dict[str, tuple[ModbusSource, int | None]]) -> None:
        """Check that the sources on one serial line, or of one connection, have the same settings."""
        try:
            address = modbus_address.parse(source.address)
        except modbus_address.AddressError:
            return
        key: Key = ("source", index, "address")
        endpoint = _real(address.endpoint) if address.scheme == "serial" else address.endpoint  # not a link to it
        first, line = lines.setdefault(endpoint, (source, self.line(key)))
        if modbus_address.parse(first.address) != address:
            legal = f"the settings of line {line}, which uses the same {_endpoint_name(address)}: {first.address}"
            self.problem(key, shown(source.address), legal)
        elif tls_options(source) != tls_options(first):
            legal = f"the server_certificate, accept and client_…_file of line {line}, which uses the same connection"
            self.problem(key, f"{shown(source.address)} with other certificates", legal)

    def _source(self, index: int, table: dict[str, Any], channels: _Locations) -> Source | None:
        key: Key = ("source", index)
        kind = table.get("kind")
        if not isinstance(kind, str) or kind not in _KINDS:
            self.problem((*key, "kind"), shown(kind) if kind is not None else "nothing", f"one of {', '.join(_KINDS)}")
            return None
        model, tag_model = _KINDS[kind]
        addresses: _Locations = {}
        tags = self._push_tags(key, table, channels, addresses) if kind == "push" else []
        file = table.get("tags")
        if isinstance(file, str):
            tags += self._listed_tags(key, file, tag_model, channels, addresses)
        elif file is not None or kind != "push":
            self.problem((*key, "tags"), shown(file) if file is not None else "nothing", "a CSV file's path")
        source = self._options(key, table, model, tuple(tag for tag, _ in tags))
        if source is None:
            return None
        for tag, location in tags:
            for fault in contradictions.between(source, tag):
                self.problems.append(location.problem(self.path.parent / table["tags"], *fault))
        return source

    def _listed_tags(
        self, key: Key, name: str, model: type[Tag], channels: _Locations, addresses: _Locations
    ) -> list[tuple[Tag, TagLocation]]:
        """The tags of a list, which no source before this one has."""
        file, tags_key = self.path.parent / name, (*key, "tags")
        real = _real(file)
        if (line := self._tag_lists.get(real)) is not None:
            self.problem(tags_key, shown(name), f"a tag list of its own; line {line} names the same")
            return []
        faulty: list[tuple[Tag, TagLocation]] = []

        def named(found: str, legal: str) -> Problem:
            return self.problem_at(tags_key, f"{shown(name)}: {found}", legal)

        listed = read_tags(file, model, self.problems, self.digests, faulty, named)
        if rows := sorted([*listed, *faulty], key=lambda row: row[1]):
            self._tag_lists[real] = self.line(tags_key)
        self._check_tags(file, rows, channels, addresses)
        return listed

    def _options(self, key: Key, table: dict[str, Any], model: type[Source], tags: tuple[Any, ...]) -> Source | None:
        """A source of these options and tags."""
        values = {**table, "tags": tags}
        if model is PushSource:
            values.pop("tag", None)
        for option in files_of(model):
            if isinstance(table.get(option), str):
                values[option] = self.existing_file(table[option], (*key, option))
        source = self.validated(key, values, model)
        if not isinstance(source, Source):
            return None
        for name, value, allowed in contradictions.in_source(source):
            self.problem((*key, name), value, allowed)
        return source

    def _push_tags(
        self, key: Key, table: dict[str, Any], channels: _Locations, addresses: _Locations
    ) -> list[tuple[Any, TagLocation]]:
        """The tables [[source.tag]], each as a row of a tag list would be, with its line."""
        rows = table.get("tag", [])
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            self.problem((*key, "tag"), shown(rows), "tables [[source.tag]]")
            return []
        tags = []
        for number, row in enumerate(rows):
            row_key: Key = (*key, "tag", number)
            tag = self.validated(row_key, row, PushTag)
            if isinstance(tag, PushTag):
                tags.append((tag, TagLocation(self.line(row_key) or 0)))
                for name, value, allowed in contradictions.in_tag(tag):
                    self.problem((*row_key, name), value, allowed)
        self._check_tags(self.path, tags, channels, addresses)
        return tags

    def _check_tags(
        self, file: Path, tags: Sequence[tuple[Tag, TagLocation]], channels: _Locations, addresses: _Locations
    ) -> None:
        """Check that channel names are unique in the plant, pushed addresses in the source; that classes exist."""
        for tag, location in tags:
            if tag.retention not in self._classes:
                allowed = did_you_mean(tag.retention, self._classes)
                self.problems.append(location.problem(file, "retention", shown(tag.retention), allowed))
            unique = [("name", tag.name, channels)]
            if isinstance(tag, PushTag):
                unique.append(("address", tag.address, addresses))
            for column, value, used in unique:
                if value in used:
                    other, line = used[value]
                    allowed = f"a unique {column}; {other}:{line} already uses it"
                    self.problems.append(location.problem(file, column, shown(value), allowed))
                else:
                    used[value] = file, location


def _real(path: Path | str) -> str:
    """The path without symbolic links."""
    try:
        return os.path.realpath(path)
    except (OSError, ValueError):  # a loop; a NUL
        return str(path)


def _endpoint_name(address: modbus_address.ModbusAddress) -> str:
    return "device" if address.scheme == "serial" else "host and port"
