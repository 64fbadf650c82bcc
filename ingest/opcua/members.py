"""Members of structures as samples (OPC 10000-6, 5.2.5 to 5.2.8).

The bytes of a structure do not name its members: they are decoded by the definition that the server has of the data
type. Consecutive members of fixed size become one ``struct.Struct``, which skips what is no channel. Other members are
read one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ingest.batch import UInt32s
from ingest.errors import DecodeError
from ingest.opcua.binary import Reader
from ingest.opcua.decoded import DataChange, Text, Unsupported
from ingest.opcua.member_steps import ABSENT, Status, Steps
from ingest.opcua.structure import NUMBERS, Structure, why_not
from ingest.opcua.text import FORMS, node_id

_BOOLEAN, _LONG, _FLOAT = 1, (8, 9), 10
_NO_BODY, _BINARY, _XML = range(3)  # encodings of an extension object (OPC 10000-6, 5.2.2.15)
_BAD = 0x80000000
_BAD_DECODING_ERROR, _BAD_ENCODING_UNSUPPORTED, _BAD_TYPE_MISMATCH = 0x80070000, 0x80390000, 0x80740000


@dataclass(frozen=True, slots=True)
class Wanted:
    """A channel that is a member of a structure."""

    channel: int
    member: str  # names, separated by dots
    index: int | None = None  # the element, if the member is an array


class Picker:
    """Decodes the wanted members of one variable's values. A value that does not fit the definition is Bad."""

    def __init__(
        self, structure: Structure | str, wanted: Sequence[Wanted], unfit: Callable[[], None] = lambda: None
    ) -> None:
        """``structure``: or why it is not known; ``unfit`` is called at each value that does not fit."""
        self._unfit = unfit
        self.channels: UInt32s = np.array([one.channel for one in wanted], np.uint32)
        self._reasons: list[tuple[int, str]] = []  # (channel, why it cannot be read)
        good: list[Wanted] = []
        for one in wanted:
            reason = structure if isinstance(structure, str) else why_not(structure, one.member, one.index)
            if reason:
                self._reasons.append((one.channel, reason))
            else:
                good.append(one)
        compiled = Steps()
        if isinstance(structure, Structure):
            compiled.add(structure, "", {(one.member, one.index) for one in good})
        places = compiled.places
        good.sort(key=lambda one: places[one.member, one.index])
        self._encoding = structure.encoding if isinstance(structure, Structure) else ""
        self._head = b""  # type id and encoding, once known
        self._layout = compiled.layout()
        self._steps = compiled.finished()
        self._absent = [ABSENT] * len(places)
        self._channels: UInt32s = np.array([one.channel for one in good], np.uint32)
        self._places = [places[one.member, one.index] for one in good]
        self._types = [compiled.types[place] for place in self._places]
        self._longs = [k for k, kind in enumerate(self._types) if kind in _LONG]
        self._has_texts = not all(kind in NUMBERS for kind in self._types)

    def read(self, reader: Reader) -> Sequence[Any] | int:
        """The values in a Variant that is a structure, or the status code that says why there are none.

        Raises DecodeError if the message is damaged.
        """
        if not self._places:
            reader.variant()
            return ()
        reader.skip(1)
        if self._head and reader.body.startswith(self._head, reader.at):
            reader.at += len(self._head)
        elif problem := self._other_type(reader):
            return problem
        body = reader.string()
        if self._layout is not None:
            if len(body) == self._layout.size:
                return self._layout.unpack(body)
        else:
            values, inside = self._absent.copy(), Reader(body)
            try:
                for step in self._steps:
                    step(inside, values)
            except DecodeError:
                inside.at = -1
            if inside.at == len(body):
                return values
        return self._is_unfit(_BAD_DECODING_ERROR)

    def _other_type(self, reader: Reader) -> int:
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
        return self._is_unfit(_BAD_TYPE_MISMATCH if encoding == _BINARY else _BAD_ENCODING_UNSUPPORTED)

    def _is_unfit(self, status: int) -> int:
        self._unfit()
        return status

    def append(
        self,
        values: Sequence[Any] | int,
        status: int,
        time: int,
        decoded: DataChange,
        exact: NDArray[np.bool_] | None,
    ) -> None:
        """Append what :meth:`read` returned. ``exact``: whether a number is wanted as text, by channel."""
        if self._reasons:
            decoded.unsupported += [Unsupported(channel, reason) for channel, reason in self._reasons]
        channels = self._channels
        if isinstance(values, int):
            decoded.append_all(channels, np.full(len(channels), np.nan), status if status & _BAD else values, time)
            return
        values = [values[place] for place in self._places]
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
                decoded.append_one(channel, np.nan, status if status & _BAD else int(value), time)
            elif kind in FORMS:
                decoded.texts.append(Text(channel, value, status, time, FORMS[kind][0]))
            elif as_text is not None and as_text[k]:
                decoded.texts.append(Text(channel, _exact(kind, value), status, time, ""))
            else:
                decoded.append_one(channel, float(value), status, time)
                if kind in _LONG and int(float(value)) != value:
                    decoded.rounded.append(np.array([channel], np.uint32))


def _exact(kind: int, value: Any) -> str:
    if kind == _BOOLEAN:
        return str(value).lower()
    return str(np.float32(value) if kind == _FLOAT else value)
