"""Results of an import: sources with the rows of their tag lists, and entries that cannot be carried over."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from core.config import contradictions
from core.config.explain import shown
from core.config.sources import CHANNEL_NAME_LENGTH, ModbusTag, OpcuaTag, SourceKind
from core.config.tags import write_rows
from core.errors import OperationError
from ops.registration.discovery.channel_names import legal_name

_MAX_LISTED = 3  # locations in a note
_TAGS: dict[SourceKind, TypeAdapter[Any]] = {"modbus": TypeAdapter(ModbusTag), "opcua": TypeAdapter(OpcuaTag)}


class NotImported(Exception):  # noqa: N818  (what happens to the entry)
    """The reason why an entry does not become a channel."""


def read_json(path: Path) -> Any:
    """The content of a JSON file. Raises OperationError."""
    try:
        return json.loads(path.read_text("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise OperationError(f"{path} is no JSON: {error}") from None


@dataclass(slots=True)
class ImportedSource:
    """A source: its options without ``tags``, and its tag list."""

    name: str
    kind: SourceKind
    options: dict[str, str | bool] = field(default_factory=dict)
    rows: list[dict[str, str]] = field(default_factory=list)  # column → cell
    names: set[str] = field(default_factory=set)  # of channels

    def add(self, path: str, columns: Mapping[str, str]) -> None:
        """Add a channel. ``path``: its names in the product, separated by slashes; duplicates get a number.

        Raises NotImported if its columns are not legal.
        """
        legal = "/".join([self.name, *(legal_name(part) for part in path.split("/") if part.strip())])
        legal, number, suffix = legal[:CHANNEL_NAME_LENGTH].rstrip("/"), 1, ""
        while (name := legal[: CHANNEL_NAME_LENGTH - len(suffix)] + suffix) in self.names:
            number += 1
            suffix = f"_{number}"
        row = {"name": name} | {column: cell for column, cell in columns.items() if cell}
        try:
            tag = _TAGS[self.kind].validate_python(row, context={"written": True})
        except ValidationError as error:
            detail = error.errors()[0]
            raise NotImported(f"{detail['loc'][0]} {shown(detail['input'])}: {detail['msg']}") from None
        for column, found, legal in contradictions.in_tag(tag):
            raise NotImported(f"{column} {found}; legal: {legal}")
        self.names.add(name)
        self.rows.append(row)

    def tag_list(self) -> str:
        """The tag list, with the columns that have a value."""
        columns = list(dict.fromkeys(["name", "address", *(column for row in self.rows for column in row)]))
        text = io.StringIO()
        write_rows(text, columns, self.rows)
        return text.getvalue()

    def stanza(self) -> str:
        """The table [[source]] of plant.toml."""
        options = {"name": self.name, "kind": self.kind, **self.options, "tags": f"{self.name}.csv"}
        # JSON's strings and truth values are TOML's, too.
        return "\n".join(["[[source]]", *(f"{option} = {json.dumps(value)}" for option, value in options.items())])


@dataclass(slots=True)
class Imported:
    """The sources of a file, and what is not carried over."""

    sources: list[ImportedSource] = field(default_factory=list)
    _left_out: dict[str, list[str]] = field(default_factory=dict)  # reason → locations
    _settings: dict[str, list[str]] = field(default_factory=dict)

    def leave_out(self, location: str, reason: str) -> None:
        """An entry that does not become a channel."""
        self._left_out.setdefault(reason, []).append(location)

    def drop(self, location: str, setting: str) -> None:
        """A setting of a channel or source that plantlog does not have: the setting, and what is done instead."""
        self._settings.setdefault(setting, []).append(location)

    @property
    def left_out(self) -> int:
        """Number of entries that don't become channels."""
        return sum(map(len, self._left_out.values()))

    def notes(self) -> Iterator[str]:
        """A line for each reason, with its locations."""
        for heading, notes in (("left out", self._left_out), ("not carried over", self._settings)):
            for reason, locations in notes.items():
                others = f" and {len(locations) - _MAX_LISTED:,} others" if len(locations) > _MAX_LISTED else ""
                yield f"{heading}: {', '.join(locations[:_MAX_LISTED])}{others}: {reason}"
