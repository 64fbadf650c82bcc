"""Values decoded from a notification or a history, and the rules by which they are decoded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from core.batch import Float64s, Int64s, UInt32s
from core.config.addresses.value_path import Indexes

if TYPE_CHECKING:
    from ingest.opcua.decode.members import StructureDecoder

FIRST_STRUCTURE = 2**31  # handles of structures, which several channels share, are at least this; others are channels


@dataclass(slots=True)
class Text:
    """One text value, or a value as text."""

    handle: int
    text: str
    status: int
    time: int  # µs
    type: str  # name of the built-in type; empty: exact text of a number
    server: int = 0  # µs, server timestamp; 0: none


@dataclass(slots=True)
class Unsupported:
    """A value that is neither a number nor representable as text."""

    handle: int
    reason: str  # such as the name of its type


@dataclass(slots=True)
class DataChange:
    """The samples of one notification. Columns are lists of arrays, to be concatenated once."""

    handle: list[UInt32s] = field(default_factory=list)
    value: list[Float64s] = field(default_factory=list)
    status: list[UInt32s] = field(default_factory=list)
    time: list[Int64s] = field(default_factory=list)  # µs: source timestamp, else server timestamp, else arrival
    server: list[Int64s] = field(default_factory=list)  # µs: the server timestamp; 0: none
    texts: list[Text] = field(default_factory=list)
    unsupported: list[Unsupported] = field(default_factory=list)
    rounded: list[UInt32s] = field(default_factory=list)  # handles of integers that float64 cannot represent
    server_time: list[UInt32s] = field(default_factory=list)  # handles without source timestamp: server timestamp used
    arrival_time: list[UInt32s] = field(default_factory=list)  # handles without timestamps: time of arrival used
    clamped: list[tuple[int, int]] = field(default_factory=list)  # handle, original time (µs), clamped to a later one
    item_server: int = 0  # µs, server timestamp of the item that is being decoded

    def append(self, handles: UInt32s, value: Float64s, status: UInt32s, time: Int64s, server: Int64s) -> None:
        """Append samples."""
        self.handle.append(handles)
        self.value.append(value)
        self.status.append(status)
        self.time.append(time)
        self.server.append(server)

    def append_one(self, handle: int, value: float, status: int, time: int) -> None:
        """Append one sample of the item that is being decoded."""
        self.append_all(np.array([handle], np.uint32), np.array([value], np.float64), status, time)

    def append_all(self, handles: UInt32s, value: Float64s, status: int, time: int) -> None:
        """Append samples of the item that is being decoded."""
        n = len(handles)
        times = np.full(n, time, np.int64), np.full(n, self.item_server, np.int64)
        self.append(handles, value, np.full(n, status, np.uint32), *times)

    def append_text(self, handle: int, text: str, status: int, time: int, type_: str) -> None:
        """Append one text."""
        self.texts.append(Text(handle, text, status, time, type_, self.item_server))

    def handles(self) -> set[int]:
        """All handles."""
        others = {text.handle for text in self.texts} | {value.handle for value in self.unsupported}
        return others.union(*(handles.tolist() for handles in self.handle))

    def columns(self) -> tuple[UInt32s, Int64s, Int64s, Float64s, UInt32s]:
        """Handles, times, server timestamps, values and status codes of everything but texts."""
        if not self.handle:
            times = np.empty(0, np.int64)
            return np.empty(0, np.uint32), times, times, np.empty(0, np.float64), np.empty(0, np.uint32)
        columns = self.handle, self.time, self.server, self.value, self.status
        return tuple(np.concatenate(c) for c in columns)  # type: ignore[return-value]


@dataclass(frozen=True, slots=True)
class DecodeRules:
    """Rules by which values are decoded, by handle; the last element of an array is for larger handles."""

    exact: NDArray[np.bool_] | None = None  # whether numbers are returned as exact text; None: of no item
    element: Int64s | None = None  # the one of ``elements`` that is read, -1: the value itself; None: of all items
    elements: Sequence[Indexes] = ()  # of arrays
    whole_arrays: bool = False  # the server sends whole arrays, not only the element
    structures: Mapping[int, StructureDecoder] = field(default_factory=dict)  # by handle
    key: int = 0  # what the client handles of the subscription are combined with (XOR)


PLAIN = DecodeRules()
