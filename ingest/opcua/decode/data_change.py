"""DataChangeNotification → columns (OPC 10000-4, 7.25.2; DataValue: OPC 10000-6, 5.2.2.17).

Consecutive items of one data type have the same size. So the first item's layout becomes a numpy structured dtype,
through which the following bytes are viewed. Everything up to the first item with other encoding bytes is decoded at
once; then the same again. Of consecutive texts only the text itself is read one by one, of arrays and structures all.

A large notification is decoded in portions, between which other sources of the process are served.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from core.batch import Int64s, UInt32s, is_rounded
from core.config.addresses.value_path import Indexes
from core.errors import DecodeError
from core.opcua.binary import UNIX_EPOCH_TICKS, Element, FieldReader, microseconds
from core.opcua.structure import NOT_AN_ARRAY, type_name, why_no_element
from core.opcua.text import FORMS, text_run
from core.status_codes import BAD
from ingest.opcua.decode.decoded import FIRST_STRUCTURE, PLAIN, DataChange, DecodeRules, Text, Unsupported
from ingest.opcua.decode.members import STRUCTURES, StructureDecoder, Values

_VALUE, _STATUS, _SOURCE, _SERVER, _SOURCE_PICO, _SERVER_PICO = 0x01, 0x02, 0x04, 0x08, 0x10, 0x20
_NUMBERS = {1: "u1", 2: "i1", 3: "u1", 4: "<i2", 5: "<u2", 6: "<i4", 7: "<u4", 8: "<i8", 9: "<u8", 10: "<f4", 11: "<f8"}
_BOOLEAN = 1
_INEXACT_KINDS = (8, 9)  # Int64 and UInt64: a float64 has 53 bits
_BAD_TYPE_MISMATCH = 0x80740000
_BAD_INDEX_RANGE_NO_DATA = 0x80370000
_ARRAY = 0x80  # bit of a variant's encoding byte (OPC 10000-6, 5.2.2.16)
_FIRST_ITEMS = 64  # items viewed through a new layout at first, so that short runs are cheap
_PORTION = 512 * 1024  # bytes: 20,000 numbers take about 7 ms until they are in the spool, 8,000 texts 30
_HANDLES = np.dtype([("handle", "<u4")])
_HANDLE = 4  # bytes before each data value of a notification; none in history


@cache
def _layout(mask: int, kind: int, head: int) -> np.dtype[Any]:
    fields: list[tuple[str, str]] = [("handle", "<u4")] if head else []
    fields.append(("mask", "u1"))
    if mask & _VALUE:
        fields += [("kind", "u1"), ("value", _NUMBERS[kind])]
    return np.dtype(fields + _behind_value(mask))


@cache
def _tail(mask: int) -> np.dtype[Any]:
    return np.dtype(_behind_value(mask))


def _behind_value(mask: int) -> list[tuple[str, str]]:
    return [
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


def data_change(body: bytes, start: int, end: int, arrival: int, rules: DecodeRules = PLAIN) -> DataChange:
    """Decode the DataChangeNotification in ``body[start:end]``. Raises DecodeError.

    Time is the source timestamp, else the server timestamp, else ``arrival`` (µs). No status is Good, no value NaN.
    """
    (change,) = portions(body, start, end, arrival, rules, size=end - start)
    return change


def portions(
    body: bytes, start: int, end: int, arrival: int, rules: DecodeRules = PLAIN, size: int = _PORTION
) -> Iterator[DataChange]:
    """Values of a notification in portions of about ``size`` bytes, at least one."""
    reader = FieldReader(body[start:end])
    remaining, end_at = reader.count(_HANDLE + 1), 0
    while remaining or not end_at:
        end_at = reader.at + size
        items = _Items(reader, arrival, rules, _HANDLE)
        remaining = items.decode(remaining, end_at)
        yield items.decoded


def history_data(
    body: bytes, start: int, end: int, handle: int, arrival: int, rules: DecodeRules = PLAIN
) -> DataChange:
    """Decode the HistoryData (OPC 10000-11, 6.6.2) of one node in ``body[start:end]``. Raises DecodeError.

    The arrays in ``rules`` have one element.
    """
    reader = FieldReader(body[start:end])
    items = _Items(reader, arrival, rules, 0, handle)
    items.decode(reader.count(1), end)
    return items.decoded


class _Items:
    """Decodes consecutive items.

    ``head``: bytes before each data value; ``handle``: that of all items, if they have none of their own.
    """

    def __init__(self, reader: FieldReader, arrival: int, rules: DecodeRules, head: int, handle: int = 0) -> None:
        self.decoded = DataChange()
        self._reader = reader
        self._arrival = arrival  # µs
        self._rules = rules
        self._head = head
        self._handle = handle

    def decode(self, remaining: int, end_at: int) -> int:
        """Decode ``remaining`` items that begin before byte ``end_at``; returns how many remain."""
        reader = self._reader
        while remaining and reader.at < end_at:
            first = reader.at + self._head
            if first >= len(reader.body):
                raise DecodeError(f"notification ends within an item, {remaining} items short")
            mask = reader.body[first]
            kind = reader.body[first + 1] if mask & _VALUE and first + 1 < len(reader.body) else 0
            if mask & ~0x3F:
                raise DecodeError(f"data value of unknown encoding 0x{mask:02X}")
            if not mask & _VALUE or kind in _NUMBERS:
                remaining -= self._run(mask, kind, remaining, end_at)
            elif kind in FORMS:
                remaining -= self._texts(mask, kind, remaining, end_at)
            else:
                self._single()
                remaining -= 1
        return remaining

    def _run(self, mask: int, kind: int, remaining: int, end_at: int) -> int:
        """Decode the items that share the first one's layout; returns their number."""
        reader, rules = self._reader, self._rules
        layout = _layout(mask, kind, self._head)
        portion = -(-(end_at - reader.at) // layout.itemsize)
        fit = min(remaining, portion, (len(reader.body) - reader.at) // layout.itemsize)
        if fit == 0:
            raise DecodeError(f"notification ends within an item, {remaining} items short")
        run, limit = 0, _FIRST_ITEMS
        while run < fit:
            n_items = min(fit, limit)
            items = np.frombuffer(reader.body, layout, n_items, reader.at)
            same = items["mask"][run:] == mask
            if mask & _VALUE:
                same &= items["kind"][run:] == kind
            if not same.all():
                run += int(np.argmin(same))
                break
            run, limit = n_items, limit * 8
        items = np.frombuffer(reader.body, layout, run, reader.at)
        reader.at += run * layout.itemsize
        handles = items["handle"] ^ np.uint32(rules.key) if self._head else np.full(run, self._handle, np.uint32)
        time, server = self._times(items, handles, mask)
        status = items["status"].astype(np.uint32) if mask & _STATUS else np.zeros(run, np.uint32)
        if not mask & _VALUE:
            if rules.structures:
                handles, status, time, server = _each_member(handles, status, time, server, rules)
            self.decoded.append(handles, np.full(len(handles), np.nan), status, time, server)
            return run
        value = items["value"]
        if (plain := self._plain(handles, kind)) is not None:
            value, handles, status = value[plain], handles[plain], status[plain]
            time, server = time[plain], server[plain]
        self._numbers(value, kind, handles, status, time, server)
        return run

    def _texts(self, mask: int, kind: int, remaining: int, end_at: int) -> int:
        """Decode the texts that have the first one's encoding; returns their number."""
        reader, layout = self._reader, _tail(mask)
        starts, texts, tails = text_run(reader, self._head, layout.itemsize, remaining, end_at)
        n = len(starts)
        handles = np.full(n, self._handle)
        if self._head:
            handles = _gathered(reader.body, starts, _HANDLES)["handle"] ^ np.uint32(self._rules.key)
        items = _gathered(reader.body, tails, layout)
        time, server = self._times(items, handles, mask)
        status = items["status"] if mask & _STATUS else np.zeros(n, np.uint32)
        rows = zip(
            *(handles.tolist(), texts, status.tolist(), time.tolist(), repeat(FORMS[kind][0]), server.tolist()),
            strict=False,
        )
        if (plain := self._plain(handles, kind)) is None:
            self.decoded.texts += [Text(*row) for row in rows]
        else:
            self.decoded.texts += [Text(*row) for row, fits in zip(rows, plain.tolist(), strict=True) if fits]
        return n

    def _times(self, items: NDArray[Any], handles: UInt32s, mask: int) -> tuple[Int64s, Int64s]:
        """Time and server timestamp (µs)."""
        source, server = (
            (np.maximum(items[name], UNIX_EPOCH_TICKS) - UNIX_EPOCH_TICKS) // 10
            if mask & bit
            else np.zeros(len(items), int)
            for bit, name in ((_SOURCE, "source"), (_SERVER, "server"))
        )  # 0: not set, or before 1970
        if (source > 0).all():
            return source, server
        self.decoded.server_time.append(handles[(source == 0) & (server > 0)])
        self.decoded.arrival_time.append(handles[(source == 0) & (server == 0)])
        return np.where(source > 0, source, np.where(server > 0, server, self._arrival)), server

    def _plain(self, handles: UInt32s, kind: int) -> NDArray[np.bool_] | None:
        """Mask of the values to be stored whole; None: all. Others have no such member or element: ``unsupported``."""
        rules, unsupported = self._rules, self.decoded.unsupported
        plain: NDArray[np.bool_] | None = None
        if rules.structures and (structured := handles >= FIRST_STRUCTURE).any():
            for handle in handles[structured].tolist():
                unsupported += (
                    rules.structures[handle].other_type(type_name(kind)) if handle in rules.structures else []
                )
            plain = ~structured
        if rules.element is not None and (no_array := _by_handle(rules.element, handles) >= 0).any():
            no_array = no_array if plain is None else no_array & plain
            reason = type_name(kind) + NOT_AN_ARRAY
            unsupported += [Unsupported(handle, reason) for handle in handles[no_array].tolist()]
            plain = ~no_array if plain is None else plain & ~no_array
        return plain

    def _numbers(
        self, raw: NDArray[Any], kind: int, handles: UInt32s, status: UInt32s, time: Int64s, server: Int64s
    ) -> None:
        """Append values of one type: as numbers, or as exact text."""
        decoded, exact = self.decoded, self._rules.exact
        if exact is not None and (as_text := _by_handle(exact, handles)).any():
            texts = [str(bool(v)).lower() if kind == _BOOLEAN else str(v) for v in raw[as_text]]
            columns = handles[as_text].tolist(), texts, *(c[as_text].tolist() for c in (status, time, server))
            rows = zip(*columns, strict=True)
            decoded.texts += [Text(*text, "", last) for *text, last in rows]  # type: ignore[call-arg]
            raw, handles, status = raw[~as_text], handles[~as_text], status[~as_text]
            time, server = time[~as_text], server[~as_text]
        with np.errstate(invalid="ignore"):  # a signalling NaN is a NaN
            value = raw.astype(np.float64)
        if kind in _INEXACT_KINDS and (rounded := is_rounded(raw, value)).any():
            decoded.rounded.append(handles[rounded])
        if kind == _BOOLEAN:
            value = (value != 0).astype(np.float64)  # any byte except 0 is true (OPC 10000-6, 5.2.2.1)
        decoded.append(handles, value, status, time, server)

    def _single(self) -> None:
        """Decode an item without a fixed size."""
        reader, rules = self._reader, self._rules
        handle = reader.uint32() ^ rules.key if self._head else self._handle
        decoder = rules.structures.get(handle) if rules.structures else None
        if decoder is None:
            element = -1 if rules.element is None else int(rules.element[min(handle, len(rules.element) - 1)])
            self._value_or_element(handle, None if element < 0 else rules.elements[element], rules.whole_arrays)
            return
        start = reader.at
        if decoder.has_members:
            self._structured(decoder)
        for channel, indexes in decoder.elements:
            reader.at = start
            self._value_or_element(channel, indexes, complete=True)

    def _value_or_element(self, handle: int, indexes: Indexes | None, complete: bool) -> None:
        """Decode a data value; ``indexes``: the element of it, ``complete``: the array has all elements."""
        reader, decoded = self._reader, self.decoded
        mask = reader.byte()
        kind = reader.body[reader.at] if reader.at < len(reader.body) else 0
        array: Element | None = None  # what is an array, and the element of it that is wanted
        text: str | None = None
        if kind & _ARRAY:
            array = reader.element(indexes or (), complete)
        elif kind in FORMS:
            reader.skip(1)
            text = FORMS[kind][1](reader)
        else:
            reader.variant()
        status, time = self._status_and_time(mask, np.array([handle], np.uint32))
        if array is not None and (reason := why_no_element(array, indexes)):
            decoded.unsupported.append(Unsupported(handle, reason))
        elif array is not None:
            self._element(array, handle, status, time)
        elif indexes is not None and kind:
            decoded.unsupported.append(Unsupported(handle, type_name(kind) + NOT_AN_ARRAY))
        elif text is not None:
            decoded.append_text(handle, text, status, time, FORMS[kind][0])
        elif kind:
            decoded.unsupported.append(Unsupported(handle, type_name(kind)))
        else:
            decoded.append_one(handle, np.nan, status or _BAD_TYPE_MISMATCH, time)

    def _structured(self, decoder: StructureDecoder) -> None:
        """Decode an item whose members are channels."""
        reader, decoded = self._reader, self.decoded
        mask = reader.byte()
        kind = reader.body[reader.at] if reader.at < len(reader.body) else 0
        values: Sequence[Values] = ()
        if kind in STRUCTURES:
            values = decoder.read(reader)
        else:
            reader.variant()
        status, time = self._status_and_time(mask, decoder.members)
        if not kind or kind in STRUCTURES:
            decoder.append(values if kind else status or _BAD_TYPE_MISMATCH, status, time, decoded, self._rules.exact)
        else:
            decoded.unsupported += decoder.other_type(type_name(kind), with_elements=False)

    def _status_and_time(self, mask: int, handles: UInt32s) -> tuple[int, int]:
        """Read the status and the timestamps that follow the value."""
        status, *ticks = self._reader.status_and_times(mask)
        source, server = (max(0, microseconds(tick)) for tick in ticks)
        self.decoded.item_server = server
        if not source:
            (self.decoded.server_time if server else self.decoded.arrival_time).append(handles)
        return status, source or server or self._arrival

    def _element(self, element: Element, handle: int, status: int, time: int) -> None:
        """Append an element of an array like a value of its type; Bad if the array does not have it."""
        kind, at, body = element.kind, element.at, self._reader.body
        if at is None:
            self.decoded.append_one(handle, np.nan, status if status & BAD else _BAD_INDEX_RANGE_NO_DATA, time)
        elif kind in FORMS:
            name, form = FORMS[kind]
            self.decoded.append_text(handle, form(FieldReader(body, at)), status, time, name)
        else:
            raw = np.frombuffer(body, _NUMBERS[kind], 1, at)
            columns = np.array([handle], np.uint32), np.array([status], np.uint32), np.array([time], np.int64)
            self._numbers(raw, kind, *columns, np.array([self.decoded.item_server]))


def _gathered(body: bytes, at: Sequence[int], layout: np.dtype[Any]) -> NDArray[Any]:
    """The structures that begin at these bytes."""
    if not layout.itemsize:
        return np.empty(len(at), layout)
    rows = np.frombuffer(body, np.uint8)[np.array(at)[:, np.newaxis] + np.arange(layout.itemsize)]
    return rows.view(layout)[:, 0]


def _channels(handle: int, rules: DecodeRules) -> UInt32s:
    """The channels that a monitored item is for."""
    decoder = rules.structures.get(handle)
    return np.array([handle], np.uint32) if decoder is None else decoder.channels


def _each_member(
    handles: UInt32s, status: UInt32s, time: Int64s, server: Int64s, rules: DecodeRules
) -> tuple[UInt32s, UInt32s, Int64s, Int64s]:
    """Repeat status and times of a structure for each of its members."""
    if not (handles >= FIRST_STRUCTURE).any():
        return handles, status, time, server
    channels = [_channels(handle, rules) for handle in handles.tolist()]
    sizes = [len(channels_of_item) for channels_of_item in channels]
    return np.concatenate(channels), np.repeat(status, sizes), np.repeat(time, sizes), np.repeat(server, sizes)


def _by_handle(column: NDArray[Any], handles: UInt32s) -> NDArray[Any]:
    values: NDArray[Any] = column[np.minimum(handles, np.uint32(len(column) - 1))]
    return values
