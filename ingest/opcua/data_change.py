"""DataChangeNotification → columns (OPC 10000-4, 7.25.2; DataValue: OPC 10000-6, 5.2.2.17).

Consecutive items of one data type have the same size. So the first item's layout becomes a numpy structured dtype,
through which the following bytes are viewed. Everything up to the first item with other encoding bytes is decoded at
once; then the same again. Only items without a fixed size (strings, arrays …) are read one by one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
from asyncua import ua
from numpy.typing import NDArray

from ingest.batch import Float64s, Int64s, UInt32s, is_rounded
from ingest.errors import DecodeError
from ingest.opcua.binary import UNIX_EPOCH_TICKS, Reader, microseconds
from ingest.opcua.text import FORMS

_VALUE, _STATUS, _SOURCE, _SERVER, _SOURCE_PICO, _SERVER_PICO = 0x01, 0x02, 0x04, 0x08, 0x10, 0x20
_NUMBERS = {1: "u1", 2: "i1", 3: "u1", 4: "<i2", 5: "<u2", 6: "<i4", 7: "<u4", 8: "<i8", 9: "<u8", 10: "<f4", 11: "<f8"}
_BOOLEAN = 1
_STRUCTURE = 22
_TYPE_NAMES = {kind.value: kind.name for kind in ua.VariantType}
_LONG = (8, 9)  # Int64 and UInt64: a float64 has 53 bits
_BAD_TYPE_MISMATCH = 0x80740000
_FIRST_ITEMS = 64  # items viewed through a new layout at first, so that short runs are cheap


@dataclass(slots=True)
class Text:
    """One text value, or a value as text."""

    handle: int
    text: str
    status: int
    time: int  # µs
    type: str  # name of the built-in type; empty: exact text of a number


@dataclass(slots=True)
class Unsupported:
    """A value that is neither a number nor representable as text."""

    handle: int
    what: str  # type name


@dataclass(slots=True)
class DataChange:
    """The samples of one notification. Columns are lists of arrays, to be concatenated once."""

    handle: list[UInt32s] = field(default_factory=list)
    value: list[Float64s] = field(default_factory=list)
    status: list[UInt32s] = field(default_factory=list)
    time: list[Int64s] = field(default_factory=list)  # µs
    texts: list[Text] = field(default_factory=list)
    unsupported: list[Unsupported] = field(default_factory=list)
    rounded: list[UInt32s] = field(default_factory=list)  # handles of integers that float64 cannot represent
    server_time: list[UInt32s] = field(default_factory=list)  # handles without source timestamp: server timestamp used
    arrival_time: list[UInt32s] = field(default_factory=list)  # handles without timestamps: time of arrival used
    clamped: list[tuple[int, int]] = field(default_factory=list)  # handle, original time (µs), clamped to a later one

    def _append_one(self, handle: int, value: float, status: int, time: int) -> None:
        self.handle.append(np.array([handle], np.uint32))
        self.value.append(np.array([value], np.float64))
        self.status.append(np.array([status], np.uint32))
        self.time.append(np.array([time], np.int64))


_HANDLE = 4  # bytes before each data value of a notification; none in history


@cache
def _layout(mask: int, kind: int, head: int) -> np.dtype[Any]:
    fields: list[tuple[str, str]] = [("handle", "<u4")] if head else []
    fields.append(("mask", "u1"))
    if mask & _VALUE:
        fields += [("kind", "u1"), ("value", _NUMBERS[kind])]
    fields += [
        (name, form)
        for bit, name, form in (
            (_STATUS, "status", "<u4"),
            (_SOURCE, "source", "<i8"),
            (_SOURCE_PICO, "source_pico", "<u2"),
            (_SERVER, "server", "<i8"),
            (_SERVER_PICO, "server_pico", "<u2"),
        )
        if mask & bit
    ]
    return np.dtype(fields)


def data_change(body: bytes, start: int, end: int, arrival: int, exact: NDArray[np.bool_] | None = None) -> DataChange:
    """Decode the DataChangeNotification in ``body[start:end]``. Raises DecodeError.

    Time is the source timestamp, else the server timestamp, else ``arrival`` (µs). No status is Good, no value NaN.
    ``exact``: by handle, whether numbers are returned as exact text; the last element is for larger handles.
    """
    return _values(Reader(body[start:end]), _HANDLE, 0, arrival, exact)


def history_data(body: bytes, start: int, end: int, handle: int, arrival: int, exact: bool = False) -> DataChange:
    """Decode the HistoryData (OPC 10000-11, 6.6.2) of one node in ``body[start:end]``. Raises DecodeError."""
    return _values(Reader(body[start:end]), 0, handle, arrival, np.ones(1, bool) if exact else None)


def _values(reader: Reader, head: int, handle: int, arrival: int, exact: NDArray[np.bool_] | None) -> DataChange:
    decoded = DataChange()
    left = reader.count(head + 1)
    while left:
        first = reader.at + head
        if first >= len(reader.body):
            raise DecodeError(f"notification ends within an item, {left} items short")
        mask = reader.body[first]
        kind = reader.body[first + 1] if mask & _VALUE and first + 1 < len(reader.body) else 0
        if mask & ~0x3F:
            raise DecodeError(f"data value of unknown encoding 0x{mask:02X}")
        if not mask & _VALUE or kind in _NUMBERS:
            left -= _run(reader, mask, kind, head, handle, left, arrival, decoded, exact)
        else:
            _single(reader, head, handle, arrival, decoded)
            left -= 1
    return decoded


def _run(
    reader: Reader,
    mask: int,
    kind: int,
    head: int,
    handle: int,
    left: int,
    arrival: int,
    decoded: DataChange,
    exact: NDArray[np.bool_] | None,
) -> int:
    """Decode the items that share the first one's layout; returns their number."""
    layout = _layout(mask, kind, head)
    fit = min(left, (len(reader.body) - reader.at) // layout.itemsize)
    if fit == 0:
        raise DecodeError(f"notification ends within an item, {left} items short")
    run, limit = 0, _FIRST_ITEMS
    while run < fit:
        upto = min(fit, limit)
        items = np.frombuffer(reader.body, layout, upto, reader.at)
        same = items["mask"][run:] == mask
        if mask & _VALUE:
            same &= items["kind"][run:] == kind
        if not same.all():
            run += int(np.argmin(same))
            break
        run, limit = upto, limit * 8
    items = np.frombuffer(reader.body, layout, run, reader.at)
    reader.at += run * layout.itemsize
    handles = items["handle"] if head else np.full(run, handle, np.uint32)
    time = _times(items, handles, mask, arrival, decoded)
    status = items["status"].astype(np.uint32) if mask & _STATUS else np.zeros(run, np.uint32)
    if mask & _VALUE and exact is not None:
        as_text = exact[np.minimum(handles, np.uint32(len(exact) - 1))]
        if as_text.any():
            raw = items["value"][as_text]
            forms = [str(bool(v)).lower() for v in raw] if kind == _BOOLEAN else [str(v) for v in raw]
            columns = handles[as_text].tolist(), forms, status[as_text].tolist(), time[as_text].tolist()
            decoded.texts += [Text(*one, "") for one in zip(*columns, strict=True)]
            items, handles, status, time = (column[~as_text] for column in (items, handles, status, time))
    decoded.handle.append(handles)
    decoded.status.append(status)
    decoded.time.append(time)
    if not mask & _VALUE:
        decoded.value.append(np.full(len(items), np.nan))
        return run
    with np.errstate(invalid="ignore"):  # a signalling NaN is a NaN
        value = items["value"].astype(np.float64)
    if kind in _LONG and (rounded := is_rounded(items["value"], value)).any():
        decoded.rounded.append(handles[rounded])
    if kind == _BOOLEAN:
        value = (value != 0).astype(np.float64)  # any byte except 0 is true (OPC 10000-6, 5.2.2.1)
    decoded.value.append(value)
    return run


def _times(items: NDArray[Any], handles: UInt32s, mask: int, arrival: int, decoded: DataChange) -> Int64s:
    time = np.full(len(items), arrival, np.int64)
    for bit, name in ((_SERVER, "server"), (_SOURCE, "source")):
        if mask & bit:
            ticks = items[name].astype(np.int64)  # 0: not set
            time = np.where(ticks > 0, (ticks - UNIX_EPOCH_TICKS) // 10, time)
    no_source = items["source"] <= 0 if mask & _SOURCE else np.ones(len(items), bool)
    if no_source.any():
        server = no_source & (items["server"] > 0) if mask & _SERVER else np.zeros(len(items), bool)
        decoded.server_time.append(handles[server])
        decoded.arrival_time.append(handles[no_source & ~server])
    return time


def _single(reader: Reader, head: int, handle: int, arrival: int, decoded: DataChange) -> None:
    """Decode an item without a fixed size."""
    if head:
        handle = reader.uint32()
    mask = reader.byte()
    kind = reader.body[reader.at] if reader.at < len(reader.body) else 0
    name, form = FORMS.get(kind, ("", None))
    text: str | None = None
    if form is not None:
        reader.skip(1)
        text = form(reader)
    else:
        reader.variant()
    status = reader.uint32() if mask & _STATUS else 0
    source = reader.int64() if mask & _SOURCE else 0
    if mask & _SOURCE_PICO:
        reader.skip(2)
    server = reader.int64() if mask & _SERVER else 0
    if mask & _SERVER_PICO:
        reader.skip(2)
    ticks = source if source > 0 else server
    time = microseconds(ticks) if ticks > 0 else arrival
    if source <= 0:
        (decoded.server_time if ticks > 0 else decoded.arrival_time).append(np.array([handle], np.uint32))
    if text is not None:
        decoded.texts.append(Text(handle, text, status, time, name))
    elif kind:
        decoded.unsupported.append(Unsupported(handle, _type_name(kind)))
    else:
        decoded._append_one(handle, np.nan, status or _BAD_TYPE_MISMATCH, time)


def _type_name(encoding: int) -> str:
    """Type name of a variant with this encoding byte that is neither a number nor representable as text."""
    if encoding & 0x80:
        return f"an array of {_TYPE_NAMES.get(encoding & 0x3F, 'an unknown type')}"
    if encoding == _STRUCTURE:
        return "a structure"
    return f"a variant of encoding 0x{encoding:02X}"
