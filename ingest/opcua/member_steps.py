"""Compiles what reads the wanted members of a structure (OPC 10000-6, 5.2.5 to 5.2.8)."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from ingest.opcua.binary import SIZES, Reader
from ingest.opcua.structure import NUMBERS, Field, Structure, fields_there, skip, union_field
from ingest.opcua.text import FORMS


class Status(int):
    """Why there is no value: a status code."""


ABSENT = Status(0x80B10000)  # BadNoDataAvailable: an optional field, or one of a union, that the value does not have
NO_ELEMENT = Status(0x80370000)  # BadIndexRangeNoData

Target: TypeAlias = tuple[str, int | None]  # member and index
Step: TypeAlias = Callable[[Reader, list[Any]], None]  # reads some members; puts wanted values in their places


class Steps:
    """Compiles what reads the wanted members of a structure."""

    def __init__(self) -> None:
        self.places: dict[Target, int] = {}  # of the values, by the order in the structure
        self.types: list[int] = []  # built-in types by place
        self._done: list[Step] = []
        self._format = ""  # of consecutive members of fixed size
        self._fixed: list[int] = []  # places of those that are wanted

    def add(self, structure: Structure, path: str, wanted: set[Target]) -> None:
        """Read a structure; ``path`` of it: empty, or ends with a dot."""
        if structure.form == "plain":
            for one in structure.fields:
                self._field(one, path, wanted)
            return
        self.finished()
        done, self._done = self._done, []
        parts: list[list[Step]] = []
        for one in structure.fields:
            self._field(one, path, wanted)
            parts.append(self.finished())
            self._done = []
        self._done = [*done, _union(parts) if structure.form == "union" else _optional(structure.fields, parts)]

    def _field(self, one: Field, path: str, wanted: set[Target]) -> None:
        name = path + one.name
        here = sorted(target for target in wanted if target[0] == name)
        if one.structure and not one.dimensions and any(target[0].startswith(f"{name}.") for target in wanted):
            self.add(one.structure, f"{name}.", wanted)
        elif here and one.type in NUMBERS and not one.dimensions:
            self._fixed.append(self._place(here[0], one.type))
            self._format += NUMBERS[one.type]
        elif not here and one.size is not None:
            self._format += f"{one.size}x"
        else:
            self.finished()
            elements = [(index, self._place((name, index), one.type)) for _, index in here]
            if not here:
                self._done.append(lambda reader, _: skip(reader, one))
            elif one.dimensions:
                self._done.append(_elements(one.type, {index or 0: place for index, place in elements}))
            else:
                self._done.append(_text(one.type, elements[0][1]))

    def _place(self, target: Target, kind: int) -> int:
        if target not in self.places:
            self.types.append(kind)
        return self.places.setdefault(target, len(self.places))

    def layout(self) -> struct.Struct | None:
        """The whole structure, if all members have a fixed size."""
        return None if self._done else struct.Struct(f"<{self._format}")

    def finished(self) -> list[Step]:
        """All steps until now."""
        if self._format:
            self._done.append(_fixed(struct.Struct(f"<{self._format}"), self._fixed))
            self._format, self._fixed = "", []
        return self._done


def _fixed(layout: struct.Struct, places: Sequence[int]) -> Step:
    def step(reader: Reader, values: list[Any]) -> None:
        start = reader.at
        reader.skip(layout.size)
        for place, value in zip(places, layout.unpack_from(reader.body, start), strict=True):
            values[place] = value

    return step


def _text(kind: int, place: int) -> Step:
    read = FORMS[kind][1]

    def step(reader: Reader, values: list[Any]) -> None:
        values[place] = read(reader)

    return step


def _elements(kind: int, places: dict[int, int]) -> Step:
    """``places`` of the values, by index."""
    read = FORMS[kind][1] if kind in FORMS else _number(kind)

    def step(reader: Reader, values: list[Any]) -> None:
        size = SIZES.get(kind)
        count, start = reader.count(size or 1), reader.at
        for place in places.values():
            values[place] = NO_ELEMENT
        if size is not None:
            reader.skip(count * size)
            for index, place in places.items():
                if index < count:
                    values[place] = read(Reader(reader.body, start + index * size))
            return
        for index in range(count):
            if index in places:
                values[places[index]] = read(reader)
            else:
                reader.built_in(kind)

    return step


def _number(kind: int) -> Callable[[Reader], Any]:
    layout = struct.Struct(f"<{NUMBERS[kind]}")

    def read(reader: Reader) -> Any:
        start = reader.at
        reader.skip(layout.size)
        return layout.unpack_from(reader.body, start)[0]

    return read


def _union(parts: Sequence[Sequence[Step]]) -> Step:
    def step(reader: Reader, values: list[Any]) -> None:
        switch = union_field(reader, len(parts))
        for inner in parts[switch - 1] if switch else ():
            inner(reader, values)

    return step


def _optional(fields: Sequence[Field], parts: Sequence[Sequence[Step]]) -> Step:
    def step(reader: Reader, values: list[Any]) -> None:
        for is_there, part in zip(fields_there(reader, fields), parts, strict=True):
            for inner in part if is_there else ():
                inner(reader, values)

    return step
