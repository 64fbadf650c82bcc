"""The definitions of channels in a configuration, as the columns of the temporary table ``configured``."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from operator import attrgetter
from typing import Any, TypeAlias

import asyncpg

from core.config.base import fields_of
from core.config.model import Plant
from core.config.sources import PRESENTATION_FIELDS, ModbusSource, ModbusTag, Source, Tag
from schema.queries import load

Definition: TypeAlias = tuple[Any, ...]  # the columns of ``configured`` but the first: name, source, address, ...

# Columns of plant.channel; the last ones of the temporary table. Every other field of a tag is an attribute.
_COLUMNS = ("kind", "unit", "lo", "hi", "deadband", "description", "retention")
PRESENTATION = (*sorted(PRESENTATION_FIELDS), "expected_interval")
"""Keys of a definition that do not change the meaning of the values."""
_column_values = attrgetter(*_COLUMNS)
_NO_ATTRIBUTES = {"name", "address", *_COLUMNS}


async def send_definitions(connection: asyncpg.Connection[Any], rows: Iterable[Definition]) -> None:
    """Fill ``configured``, which is empty."""
    records = ((ordinal, *row) for ordinal, row in enumerate(rows))
    await connection.copy_records_to_table("configured", schema_name="pg_temp", records=records)
    await connection.execute(load("register")["analyze_configured"])


def definitions(plant: Plant) -> Iterator[Definition]:
    """Definitions of each channel, in the order of the configuration."""
    for source in plant.sources:
        attributes_of: dict[type[Tag], _Attributes] = {}
        for tag in source.tags:
            kind = type(tag)
            if kind not in attributes_of:
                attributes_of[kind] = _Attributes(source, kind)
            attributes = attributes_of[kind].attributes(tag)
            yield (tag.name, source.name, getattr(tag, "address", ""), attributes, *_column_values(tag))


class _Attributes:
    """Attributes of a source's tags beside the columns, as JSON: most of them say the same."""

    def __init__(self, source: Source, kind: type[Tag]) -> None:
        fields = {name: field.default for name, field in fields_of(kind).items() if name not in _NO_ATTRIBUTES}
        self._source = source
        self._defaults = tuple(fields.items())
        self._values = attrgetter(*fields)
        self._known: dict[tuple[Any, ...], str] = {}

    def attributes(self, tag: Tag) -> str:
        """A JSON object."""
        values = (tag.kind == "text", *self._values(tag))
        if values not in self._known:
            self._known[values] = self._to_json(tag, values[1:])
        return self._known[values]

    def _to_json(self, tag: Tag, values: tuple[Any, ...]) -> str:
        pairs = zip(self._defaults, values, strict=True)
        attributes = {name: value for (name, default), value in pairs if value != default}
        source = self._source
        if isinstance(source, ModbusSource) and isinstance(tag, ModbusTag):
            if tag.kind != "text":
                # s; texts are stored when they change, so that no number of them is to be expected
                attributes["expected_interval"] = tag.interval or source.poll_interval
            if tag.unit_id is None and source.unit_id != 1:
                attributes["unit_id"] = source.unit_id  # another unit is another device
        return json.dumps(attributes, sort_keys=True)
