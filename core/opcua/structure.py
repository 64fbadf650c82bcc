"""Structured data types as a server defines them (OPC 10000-3, 8.48 and 8.49), and their members."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Literal

from core.config.addresses.value_path import Indexes, Path
from core.errors import DecodeError
from core.opcua.binary import SIZES, Element, FieldReader
from core.opcua.text import FORMS

STRUCTURE = 22  # the built-in type of a nested structure, and of an extension object of any type
NUMBERS = dict(zip(range(1, 12), "?bBhHiIqQfd", strict=True))  # built-in type → format of ``struct``
_NAMES = ("Boolean", "SByte", "Byte", "Int16", "UInt16", "Int32", "UInt32", "Int64", "UInt64", "Float", "Double")
_OTHERS = {STRUCTURE: "structure", 23: "DataValue", 24: "Variant", 25: "DiagnosticInfo"}
_TYPE_NAMES = dict(enumerate(_NAMES, 1)) | {kind: name for kind, (name, _) in FORMS.items()} | _OTHERS
NO_ARRAY = "a structure, not an array: the column member begins with the name of a member"
NOT_AN_ARRAY = ", not an array: clear the column index"
_MAX_DEPTH = 16  # of structures in structures
_MAX_LISTED = 20  # members in a reason


def type_name(encoding: int, dimensions: int = 1) -> str:
    """Type name of a variant with this encoding byte; ``dimensions``: of an array."""
    kind = encoding & 0x3F
    name = _TYPE_NAMES.get(kind, "an unknown type")
    if encoding & 0x80:
        dimensions_text = f" of {dimensions} dimensions" if dimensions > 1 else ""
        return f"an array of {name}{'s' if kind == STRUCTURE else ''}{dimensions_text}"
    if encoding == STRUCTURE:
        return "a structure: the column member reads a member"
    return f"a variant of encoding 0x{encoding:02X}" if encoding > STRUCTURE else f"a {name}"


def reads_element(kind: int, dimensions: int, example: str = "[{}].Speed") -> str:
    """Advice how to read an element of an array of this built-in type; empty: it is not possible."""
    first = ",".join("0" * dimensions)
    if kind == STRUCTURE:
        return f": the column member reads a member of an element, as in {example.format(first)}"
    if kind not in NUMBERS and kind not in FORMS:
        return ""
    return ": the column index reads an element" + (f", as in {first}" if dimensions > 1 else "")


def other_dimensions(dimensions: int) -> str:
    """Describe an index of another number of dimensions than the array has."""
    numbers = "1 number" if dimensions == 1 else f"{dimensions} numbers"
    return f": an element has an index of {numbers}, as in {','.join('0' * dimensions)}"


def why_no_element(array: Element, indexes: Indexes | None) -> str:
    """Reason why no array of this type and these dimensions has an element; empty: a long enough one has it."""
    dimensions = len(array.lengths)
    is_value = array.kind in NUMBERS or array.kind in FORMS
    if indexes is not None and is_value and (array.at is not None or 0 in array.lengths or len(indexes) == dimensions):
        return ""
    array_type = type_name(array.kind | 0x80, dimensions)
    return array_type + (
        other_dimensions(dimensions) if indexes and is_value else reads_element(array.kind, dimensions)
    )


@dataclass(frozen=True, slots=True, eq=False)
class Field:
    """A field of a structure."""

    name: str
    type: int  # built-in type
    structure: Structure | None = None  # if the type is STRUCTURE; None: an extension object of any type
    dimensions: int = 0  # 0: no array
    optional: bool = False
    enumeration: bool = False  # of which only the number is encoded

    @property
    def type_name(self) -> str:
        """Type of the field, for people."""
        return type_name(self.type | 0x80, self.dimensions) if self.dimensions else f"a {_TYPE_NAMES[self.type]}"

    @property
    def why_not(self) -> str:
        """Reason why the field cannot be a channel; empty: it can."""
        if self.dimensions:
            return self.type_name + _reads_element(self)
        if self.structure:
            return f"a structure: the column member names one of its members: {_listed(self.structure)}"
        return "" if self.is_value else self.type_name

    @property
    def is_value(self) -> bool:
        """Return whether it, or an element of it, is a number or has a text form."""
        return self.type in NUMBERS or self.type in FORMS

    @property
    def size(self) -> int | None:
        """Bytes; None: it depends on the value."""
        if self.dimensions:
            return None
        return self.structure.size if self.structure else SIZES.get(self.type)


@dataclass(slots=True, eq=False)
class Structure:
    """A structured data type. One may contain itself, within an array or an optional field."""

    name: str
    encoding: str = ""  # node id of its binary encoding
    form: Literal["plain", "optional", "union"] = "plain"
    fields: list[Field] = field(default_factory=list)
    _size: int | None = -1  # -1: not known yet

    @property
    def size(self) -> int | None:
        """Bytes of each value; None: it depends on the value."""
        if self._size == -1:
            self._size = None  # of one that contains itself
            sizes = [member.size for member in self.fields]
            if self.form == "plain" and None not in sizes:
                self._size = sum(filter(None, sizes))
        return self._size

    def members(self, path: str = "", depth: int = 0) -> Iterator[tuple[str, Field]]:
        """(path, field) of all members, also of nested structures, that are no structures, in order."""
        for member in self.fields:
            name = f"{path}{member.name}"
            if member.structure is None or member.dimensions:
                yield name, member
            elif depth < _MAX_DEPTH:
                yield from member.structure.members(f"{name}.", depth + 1)


def locate(structure: Structure, path: Path) -> Field | str:
    """The field at a path, or the fault of the path. An element is a field without dimensions."""
    reached: Field | str = Field("", STRUCTURE, structure)
    if len(path) > 2 * _MAX_DEPTH:
        return f"more than {_MAX_DEPTH} structures deep"
    for depth, step in enumerate(path, 1):
        assert isinstance(reached, Field)
        reached = _member(reached, step) if isinstance(step, str) else _element(reached, step, depth == len(path))
        if isinstance(reached, str):
            break
    return reached


def _member(field: Field, name: str) -> Field | str:
    inside = field.structure
    if field.dimensions and inside:
        return f"{field.name} is {field.type_name}{_reads_element(field, name)}"
    if field.dimensions or inside is None:
        return f"{field.name} is {field.type_name}, which has no member {name}"
    member = next((member_field for member_field in inside.fields if member_field.name == name), None)
    return member or f"the structure {inside.name} has no member {name}; it has {_listed(inside)}"


def _element(field: Field, indexes: Indexes, is_last: bool) -> Field | str:
    if not field.dimensions:
        return field.type_name + NOT_AN_ARRAY if is_last else f"{field.name} is {field.type_name}, not an array"
    if len(indexes) != field.dimensions:
        return field.type_name + other_dimensions(field.dimensions)
    return replace(field, dimensions=0)


def why_not(structure: Structure, path: Path) -> str:
    """Reason why a path cannot be a channel; empty: it can."""
    field = locate(structure, path)
    return field if isinstance(field, str) else field.why_not


def _reads_element(array: Field, member: str = "Speed") -> str:
    if array.type == STRUCTURE and array.structure is None:
        return ""
    return reads_element(array.type, array.dimensions, f"{array.name}[{{}}].{member}")


def _listed(structure: Structure) -> str:
    names = [member.name for member in structure.fields]
    more = f" and {len(names) - _MAX_LISTED} others" if len(names) > _MAX_LISTED else ""
    return f"{', '.join(names[:_MAX_LISTED])}{more}"


def union_field(reader: FieldReader, fields: int) -> int:
    """Read the number of the field that a union has, from 1; 0: none (OPC 10000-6, 5.2.8). Raises DecodeError."""
    switch = reader.uint32()
    if switch > fields:
        raise DecodeError(f"a union of {fields} fields has number {switch}")
    return switch


def present_fields(reader: FieldReader, fields: Sequence[Field]) -> list[bool]:
    """Read the mask of optional fields (OPC 10000-6, 5.2.7); for each field, True if the value has it.

    Raises DecodeError.
    """
    mask = reader.uint32()
    present_indexes = []
    for member_field in fields:
        present_indexes.append(not member_field.optional or bool(mask & 1))
        mask >>= member_field.optional
    if mask:
        raise DecodeError(f"a structure of {len(fields)} fields has others")
    return present_indexes


def read_lengths(reader: FieldReader, array: Field, size: int | None) -> Indexes:
    """Read the lengths of a field that is an array, of each dimension (OPC 10000-6, 5.2.5). Raises DecodeError.

    ``size``: bytes of an element; None: it depends on the value.
    """
    if array.dimensions == 1:
        return (reader.count(1 if size is None else size),)
    lengths = tuple(max(reader.int32(), 0) for _ in range(reader.count(4))) or (0,) * array.dimensions
    if len(lengths) != array.dimensions or prod(lengths) > len(reader.body):
        raise DecodeError(f"{array.type_name} has the lengths {lengths}, in a structure of {len(reader.body)} bytes")
    return lengths


def skip(reader: FieldReader, member: Field, depth: int = 0) -> None:
    """Skip a field. Raises DecodeError."""
    size = member.structure.size if member.structure else SIZES.get(member.type)
    count = prod(read_lengths(reader, member, size)) if member.dimensions else 1
    if size is not None:
        reader.skip(count * size)
        return
    if depth > _MAX_DEPTH or count > len(reader.body):
        raise DecodeError(f"{count} structures in {len(reader.body)} bytes, {depth} deep")
    for _ in range(count):
        if member.structure is None:
            reader.built_in(member.type)
            continue
        fields: Sequence[Field] = member.structure.fields
        if member.structure.form == "union":
            switch = union_field(reader, len(fields))
            fields = fields[max(switch - 1, 0) : switch]
        elif member.structure.form == "optional":
            fields = [part for part, is_there in zip(fields, present_fields(reader, fields), strict=True) if is_there]
        for part in fields:
            skip(reader, part, depth + 1)
