"""Members of structures as samples (OPC 10000-6, 5.2.5 to 5.2.8).

The bytes of a structure do not name its members: they are decoded by the definition that the server has of the data
type. Consecutive members of fixed size become one ``struct.Struct``, which skips what is no channel. Other members are
read one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from core.batch import UInt32s
from core.config.addresses.value_path import Indexes, Path, flat_index, parse, split
from core.errors import DecodeError
from core.opcua.binary import FieldReader
from core.opcua.structure import (
    NO_ARRAY,
    NOT_AN_ARRAY,
    NUMBERS,
    STRUCTURE,
    Structure,
    other_dimensions,
    reads_element,
    type_name,
    why_not,
)
from core.opcua.text import FORMS, node_id
from core.status_codes import BAD
from ingest.opcua.decode.decoded import DataChange, Unsupported
from ingest.opcua.decode.member_steps import ABSENT, NO_ELEMENT, Status, StepCompiler

_BOOLEAN, _LONG, _FLOAT = 1, (8, 9), 10
_NO_BODY, _BINARY, _XML = range(3)  # encodings of an extension object (OPC 10000-6, 5.2.2.15)
_LEAST_OBJECT = 3  # bytes of an extension object
_HAS_DIMENSIONS = 0x40
_BAD_DECODING_ERROR, _BAD_ENCODING_UNSUPPORTED, _BAD_TYPE_MISMATCH = 0x80070000, 0x80390000, 0x80740000
STRUCTURES = (STRUCTURE, STRUCTURE | 0x80, STRUCTURE | 0xC0)  # encodings of a structure, and of arrays of them

Values: TypeAlias = Sequence[Any] | int | str  # by position; or why there are none: a status code, or a reason


@dataclass(frozen=True, slots=True)
class MemberChannel:
    """A channel that is a member of a structure or of an element, or an element itself."""

    channel: int
    path: str  # see ``core.config.addresses.value_path``


class StructureDecoder:
    """Decodes the wanted members of one variable's values. A value that does not fit the definition is Bad.

    ``channels``: the ids of all channels of the variable.
    ``members``: the ids of the channels that are members of a structure.
    ``elements``: id and indexes of the channels that are elements of an array of numbers.
    """

    def __init__(
        self, structure: Structure | str, tags: Sequence[MemberChannel], unfit: Callable[[], None] = lambda: None
    ) -> None:
        """``structure``: or why it is not known; ``unfit`` is called at each value that does not fit."""
        self.channels: UInt32s = np.array([tag.channel for tag in tags], np.uint32)
        self.elements: list[tuple[int, Indexes]] = []
        self._reasons: list[Unsupported] = []
        readable: dict[Indexes, list[tuple[int, Path]]] = {}
        for tag in tags:
            element, inside = split(parse(tag.path))
            if not inside:
                self.elements.append((tag.channel, element))
            elif reason := structure if isinstance(structure, str) else why_not(structure, inside):
                self._reasons.append(Unsupported(tag.channel, reason))
            else:
                readable.setdefault(element, []).append((tag.channel, inside))
        elements = {channel for channel, _ in self.elements}
        self.members: UInt32s = np.array([c for c in self.channels.tolist() if c not in elements], np.uint32)
        self.has_members = bool(len(self.members)) or not self.elements
        # By the element that is the structure; () if the value itself is it.
        self._structures = {
            element: StructureLayout(structure, channels, unfit)
            for element, channels in readable.items()
            if isinstance(structure, Structure)
        }
        self._is_alone = [*self._structures] == [()]

    def read(self, reader: FieldReader) -> Sequence[Values]:
        """The values in a Variant of one of :data:`STRUCTURES`, for :meth:`append`.

        Raises DecodeError if the message is damaged.
        """
        if not self._structures:
            reader.variant()
            return ()
        encoding = reader.body[reader.at]
        reader.at += 1
        if encoding != STRUCTURE:
            return self._read_elements(reader, encoding)
        if self._is_alone:
            return (self._structures[()].read(reader),)
        values = [NO_ARRAY if element else members.read(reader) for element, members in self._structures.items()]
        if () not in self._structures:
            reader.extension_object()
        return values

    def _read_elements(self, reader: FieldReader, encoding: int) -> Sequence[Values]:
        starts: list[int] = []
        for _ in range(reader.count(_LEAST_OBJECT)):
            starts.append(reader.at)
            reader.extension_object()
        has_dimensions = encoding & _HAS_DIMENSIONS
        lengths = tuple(reader.int32() for _ in range(reader.count(4))) if has_dimensions else (len(starts),)
        array = type_name(encoding & ~_HAS_DIMENSIONS, len(lengths))
        values: list[Values] = []
        for element, members in self._structures.items():
            at = flat_index(element, lengths)
            if not element:
                values.append(array + reads_element(STRUCTURE, len(lengths)))
            elif starts and len(element) != len(lengths):
                values.append(array + other_dimensions(len(lengths)))
            elif at is None or at >= len(starts):
                values.append(NO_ELEMENT)
            else:
                values.append(members.read(FieldReader(reader.body, starts[at])))
        return values

    def other_type(self, type_in_words: str, *, with_elements: bool = True) -> Sequence[Unsupported]:
        """The members, and elements, of a value that is something else."""
        elements = [channel for channel, _ in self.elements] if with_elements else []
        no_structure = f"{type_in_words}, not a structure: clear the column member"
        return [
            *(Unsupported(channel, no_structure) for channel in self.members.tolist()),
            *(Unsupported(channel, type_in_words + NOT_AN_ARRAY) for channel in elements),
        ]

    def append(
        self,
        values: Sequence[Values] | int,
        status: int,
        time: int,
        decoded: DataChange,
        exact: NDArray[np.bool_] | None,
    ) -> None:
        """Append what :meth:`read` returned, or samples of a Bad status.

        ``exact``: whether a number is wanted as text, by channel.
        """
        if self._reasons:
            decoded.unsupported += self._reasons
        values_of_structures: Iterable[Values] = [values] * len(self._structures) if isinstance(values, int) else values
        for members, values_of_structure in zip(self._structures.values(), values_of_structures, strict=True):
            members.append(values_of_structure, status, time, decoded, exact)


class StructureLayout:
    """The channels that are members of one structure."""

    def __init__(self, structure: Structure, targets: Sequence[tuple[int, Path]], unfit: Callable[[], None]) -> None:
        self._unfit = unfit
        compiled = StepCompiler()
        compiled.add(structure, (), {path for _, path in targets})
        positions = compiled.positions
        readable = sorted(targets, key=lambda target: positions[target[1]])
        self._encoding = structure.encoding
        self._head = b""  # type id and encoding, once known
        self._layout = compiled.layout()
        self._steps = compiled.finished()
        self._absent = [ABSENT] * len(positions)
        self._channels: UInt32s = np.array([channel for channel, _ in readable], np.uint32)
        self._positions = [positions[path] for _, path in readable]
        self._types = [compiled.types[index] for index in self._positions]
        self._longs = [k for k, kind in enumerate(self._types) if kind in _LONG]
        self._has_texts = not all(kind in NUMBERS for kind in self._types)

    def read(self, reader: FieldReader) -> Values:
        """The values in an extension object, or the status code that says why there are none.

        Raises DecodeError if the message is damaged.
        """
        if self._head and reader.body.startswith(self._head, reader.at):
            reader.at += len(self._head)
        elif problem := self._other_type(reader):
            return problem
        body = reader.string()
        if self._layout is not None:
            if len(body) == self._layout.size:
                return self._layout.unpack(body)
        else:
            values, inside = self._absent.copy(), FieldReader(body)
            try:
                for step in self._steps:
                    step(inside, values)
            except DecodeError:
                inside.at = -1
            if inside.at == len(body):
                return values
        return self._report_unfit(_BAD_DECODING_ERROR)

    def _other_type(self, reader: FieldReader) -> int:
        """Read the type id and the encoding: 0 if they are as defined, else a status code, and the body is skipped."""
        start = reader.at
        type_id, encoding = node_id(reader), reader.byte()
        if encoding == _NO_BODY:
            return _BAD_TYPE_MISMATCH
        if encoding not in (_BINARY, _XML):
            raise DecodeError(f"extension object of unknown encoding {encoding}")
        if encoding == _BINARY and type_id == self._encoding:
            self._head = reader.body[start : reader.at]
            return 0
        reader.string()
        return self._report_unfit(_BAD_TYPE_MISMATCH if encoding == _BINARY else _BAD_ENCODING_UNSUPPORTED)

    def _report_unfit(self, status: int) -> int:
        self._unfit()
        return status

    def append(
        self, values: Values, status: int, time: int, decoded: DataChange, exact: NDArray[np.bool_] | None
    ) -> None:
        """Append what :meth:`read` returned, or say why it cannot be read."""
        channels = self._channels
        if isinstance(values, str):
            decoded.unsupported += [Unsupported(channel, values) for channel in channels.tolist()]
            return
        if isinstance(values, int):
            decoded.append_all(channels, np.full(len(channels), np.nan), status if status & BAD else values, time)
            return
        values = [values[index] for index in self._positions]
        as_text = None if exact is None else exact[np.minimum(channels, np.uint32(len(exact) - 1))]
        is_mixed = self._has_texts or (as_text is not None and as_text.any())
        if is_mixed or (self._layout is None and Status in map(type, values)):
            self._append_each(values, status, time, decoded, as_text)
            return
        numbers = np.array(values, np.float64)
        for k in self._longs:
            if int(numbers[k]) != values[k]:
                decoded.rounded.append(channels[k : k + 1])
        decoded.append_all(channels, numbers, status, time)

    def _append_each(
        self, values: Sequence[Any], status: int, time: int, decoded: DataChange, as_text: NDArray[np.bool_] | None
    ) -> None:
        for k, (channel, kind, value) in enumerate(zip(self._channels.tolist(), self._types, values, strict=True)):
            if isinstance(value, Status):
                decoded.append_one(channel, np.nan, status if status & BAD else int(value), time)
            elif kind in FORMS:
                decoded.append_text(channel, value, status, time, FORMS[kind][0])
            elif as_text is not None and as_text[k]:
                decoded.append_text(channel, _exact(kind, value), status, time, "")
            else:
                decoded.append_one(channel, float(value), status, time)
                if kind in _LONG and int(float(value)) != value:
                    decoded.rounded.append(np.array([channel], np.uint32))


def _exact(kind: int, value: Any) -> str:
    if kind == _BOOLEAN:
        return str(value).lower()
    return str(np.float32(value) if kind == _FLOAT else value)
