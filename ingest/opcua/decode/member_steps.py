"""Compiles what reads the wanted members of a structure (OPC 10000-6, 5.2.5 to 5.2.8)."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any, TypeAlias

from core.config.addresses.value_path import Indexes, Path, flat_index
from core.opcua.binary import FieldReader
from core.opcua.structure import NUMBERS, Field, Structure, present_fields, read_lengths, skip, union_field
from core.opcua.text import FORMS


class Status(int):
    """Status code that says why there is no value."""


ABSENT = Status(0x80B10000)  # BadNoDataAvailable: an optional field, or one of a union, that the value does not have
NO_ELEMENT = Status(0x80370000)  # BadIndexRangeNoData

Step: TypeAlias = Callable[[FieldReader, list[Any]], None]  # reads some members; puts wanted values in their positions


class StepCompiler:
    """Compiles what reads the wanted members of a structure."""

    def __init__(self) -> None:
        self.positions: dict[Path, int] = {}  # of the values, by the order in the structure
        self.types: list[int] = []  # built-in types by position
        self._done: list[Step] = []
        self._format = ""  # of consecutive members of fixed size
        self._fixed: list[int] = []  # positions of those that are wanted

    def add(self, structure: Structure, path: Path, targets: set[Path]) -> None:
        """Read a structure; ``path`` of it."""
        if structure.form == "plain":
            for field in structure.fields:
                self._field(field, (*path, field.name), targets)
            return
        parts = [self._part(field, (*path, field.name), targets) for field in structure.fields]
        self.finished().append(_union(parts) if structure.form == "union" else _optional(structure.fields, parts))

    def _field(self, field: Field, path: Path, targets: set[Path]) -> None:
        within = {target for target in targets if target[: len(path)] == path}
        if not within and field.size is not None:
            self._format += f"{field.size}x"
        elif not within:
            self.finished().append(lambda reader, _: skip(reader, field))
        elif field.dimensions:
            parts: dict[Indexes, tuple[Sequence[Step], range]] = {}
            for indexes in sorted({target[len(path)] for target in within}):
                assert isinstance(indexes, tuple)
                first = len(self.types)
                part = self._part(replace(field, dimensions=0), (*path, indexes), within)
                parts[indexes] = part, range(first, len(self.types))
            self.finished().append(_elements(field, parts))
        elif field.structure:
            self.add(field.structure, path, within)
        elif field.type in NUMBERS:
            self._fixed.append(self._position(path, field.type))
            self._format += NUMBERS[field.type]
        else:
            self.finished().append(_text(field.type, self._position(path, field.type)))

    def _part(self, field: Field, path: Path, targets: set[Path]) -> list[Step]:
        """Steps that read a field, apart from the others."""
        before, self._done = self.finished(), []
        self._field(field, path, targets)
        part, self._done = self.finished(), before
        return part

    def _position(self, path: Path, kind: int) -> int:
        if path not in self.positions:
            self.types.append(kind)
        return self.positions.setdefault(path, len(self.positions))

    def layout(self) -> struct.Struct | None:
        """The whole structure, if all members have a fixed size."""
        return None if self._done else struct.Struct(f"<{self._format}")

    def finished(self) -> list[Step]:
        """All steps until now."""
        if self._format:
            self._done.append(_fixed(struct.Struct(f"<{self._format}"), self._fixed))
            self._format, self._fixed = "", []
        return self._done


def _fixed(layout: struct.Struct, positions: Sequence[int]) -> Step:
    def step(reader: FieldReader, values: list[Any]) -> None:
        start = reader.at
        reader.skip(layout.size)
        for index, value in zip(positions, layout.unpack_from(reader.body, start), strict=True):
            values[index] = value

    return step


def _text(kind: int, index: int) -> Step:
    read = FORMS[kind][1]

    def step(reader: FieldReader, values: list[Any]) -> None:
        values[index] = read(reader)

    return step


def _elements(array: Field, parts: Mapping[Indexes, tuple[Sequence[Step], range]]) -> Step:
    """``parts``: the steps of an element, and the positions of its values."""
    element = replace(array, dimensions=0)
    size = element.size

    def step(reader: FieldReader, values: list[Any]) -> None:
        lengths = read_lengths(reader, array, size)
        count, start = prod(lengths), reader.at
        if size is not None:
            reader.skip(count * size)
        behind: dict[int, Sequence[Step]] = {}
        for indexes, (steps, positions) in parts.items():
            at = flat_index(indexes, lengths)
            if at is None:
                values[positions.start : positions.stop] = [NO_ELEMENT] * len(positions)
            elif size is None:
                behind[at] = steps
            else:
                inside = FieldReader(reader.body, start + at * size)
                for inner in steps:
                    inner(inside, values)
        for at in range(count if size is None else 0):
            if at not in behind:
                skip(reader, element)
            for inner in behind.get(at, ()):
                inner(reader, values)

    return step


def _union(parts: Sequence[Sequence[Step]]) -> Step:
    def step(reader: FieldReader, values: list[Any]) -> None:
        switch = union_field(reader, len(parts))
        for inner in parts[switch - 1] if switch else ():
            inner(reader, values)

    return step


def _optional(fields: Sequence[Field], parts: Sequence[Sequence[Step]]) -> Step:
    def step(reader: FieldReader, values: list[Any]) -> None:
        for is_there, part in zip(present_fields(reader, fields), parts, strict=True):
            for inner in part if is_there else ():
                inner(reader, values)

    return step
