"""Reads the rows of an SQLite file page by page, whatever the state of its B-trees.

https://www.sqlite.org/fileformat2.html, sections 1.6 (B-tree pages), 1.7 (overflow), 2.1 (records), 4.1 (WAL). Every
leaf page of a table is self-contained, so that one lost page costs only its own rows. Freed pages
still hold deleted rows: the caller has to filter them.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import TypeAlias

from ingest.spool.file import PAGE_SIZE

Value: TypeAlias = int | float | str | bytes | None

_LEAF_TABLE, _LEAF_INDEX = 0x0D, 0x0A
_WAL_HEADER, _FRAME_HEADER = 32, 24
_PAGES = 2**31  # no file has more
_INTEGERS = (0, 1, 2, 3, 4, 6, 8)  # bytes of serial types 0 to 6


class Pages:
    """The pages of a database file and its WAL; of several versions of a page, the last committed one."""

    size = PAGE_SIZE  # ours is fixed; the header may be damaged

    def __init__(self, main: Path, log: Path) -> None:
        self._main = os.open(main, os.O_RDONLY | os.O_CLOEXEC)
        self._log = os.open(log, os.O_RDONLY | os.O_CLOEXEC) if log.exists() else None
        self._logged = dict(self._committed_frames())  # page number → offset in the WAL
        in_main = -(-os.fstat(self._main).st_size // self.size)
        self.count = max([in_main, *self._logged])

    def __enter__(self) -> Pages:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._main)
        if self._log is not None:
            os.close(self._log)

    def page(self, number: int) -> bytes:
        """Page ``number``, from 1; truncated at the end of the file, empty on read errors."""
        try:
            if number in self._logged and self._log is not None:
                return os.pread(self._log, self.size, self._logged[number])
            return os.pread(self._main, self.size, (number - 1) * self.size)
        except (OSError, ValueError, OverflowError):
            return b""

    def rows(self) -> Iterator[list[Value]]:
        """The rows of all tables, rowid first; an INTEGER PRIMARY KEY column is NULL, as in the file."""
        for number in range(1, self.count + 1):
            page = self.page(number)
            start = 100 if number == 1 else 0
            kind = page[start] if len(page) > start else 0
            if kind in (_LEAF_TABLE, _LEAF_INDEX):
                yield from self._cells(page, start, with_key=kind == _LEAF_TABLE)

    def _cells(self, page: bytes, start: int, *, with_key: bool) -> Iterator[list[Value]]:
        try:
            (count,) = struct.unpack_from(">H", page, start + 3)
        except struct.error:
            return
        for number in range(min(count, self.size // 2)):
            try:
                (at,) = struct.unpack_from(">H", page, start + 8 + 2 * number)
                yield self._cell(page, at, with_key=with_key)
            except (ValueError, IndexError, struct.error):
                continue  # damaged cell

    def _cell(self, page: bytes, at: int, *, with_key: bool) -> list[Value]:
        length, at = _varint(page, at)
        key: list[Value] = []
        if with_key:
            number, at = _varint(page, at)
            key = [number]
        if length > self.count * self.size:
            raise ValueError("longer than the file")
        most = self.size - 35 if with_key else (self.size - 12) * 64 // 255 - 23
        if length <= most:
            return key + _record(_slice(page, at, length))
        least = (self.size - 12) * 32 // 255 - 23
        local = least + (length - least) % (self.size - 4)
        local = local if local <= most else least
        (following,) = struct.unpack_from(">I", page, at + local)
        return key + _record(_slice(page, at, local) + self._overflow(following, length - local))

    def _overflow(self, number: int, remaining: int) -> bytes:
        parts: list[bytes] = []
        while remaining > 0:
            if not 1 < number <= self.count:
                raise ValueError("the chain is broken")
            page = self.page(number)
            parts.append(_slice(page, 4, min(remaining, self.size - 4)))
            remaining -= len(parts[-1])
            (number,) = struct.unpack_from(">I", page, 0)
        return b"".join(parts)

    def _committed_frames(self) -> Iterator[tuple[int, int]]:
        """(page number, offset) of the WAL's frames up to the last commit, in the order of writing.

        Frames from before the last WAL reset have other salts, and damaged ones wrong ones: both are skipped.
        """
        if self._log is None:
            return
        waiting: list[tuple[int, int]] = []
        salts = self._salts(self._log)
        for at in range(_WAL_HEADER, os.fstat(self._log).st_size, _FRAME_HEADER + self.size):
            frame = _read(self._log, _FRAME_HEADER, at)
            if frame[8:16] != salts or len(frame) < _FRAME_HEADER:
                continue
            number, after_commit = struct.unpack_from(">II", frame)
            if not 0 < number < _PAGES:
                continue
            waiting.append((number, at + _FRAME_HEADER))
            if after_commit:
                yield from waiting
                waiting.clear()

    def _salts(self, log: int) -> bytes:
        """The salts in the header, or in the first frames if the header is damaged."""
        places = (_WAL_HEADER + k * (_FRAME_HEADER + self.size) + 8 for k in range(2))
        header, *frames = _read(log, 8, 16), *(_read(log, 8, at) for at in places)
        return frames[0] if frames[0] == frames[1] and frames[0] else header


def _read(descriptor: int, length: int, at: int) -> bytes:
    """Read bytes; truncated at the end of the file, empty on read errors."""
    try:
        return os.pread(descriptor, length, at)
    except OSError:
        return b""


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A varint of 1 to 9 bytes, and the offset after it."""
    value = 0
    for i in range(8):
        byte = data[at + i]
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, at + i + 1
    value = value << 8 | data[at + 8]
    return (value - 2**64 if value >= 2**63 else value), at + 9


def _slice(data: bytes, at: int, length: int) -> bytes:
    part = data[at : at + length]
    if len(part) != length:
        raise ValueError("the page ends before")
    return part


def _record(data: bytes) -> list[Value]:
    end, at = _varint(data, 0)
    if not 0 < end <= len(data):
        raise ValueError("no record")
    kinds: list[int] = []
    while at < end:
        kind, at = _varint(data, at)
        kinds.append(kind)
    values: list[Value] = []
    at = end
    for kind in kinds:
        value, length = _value(kind, data, at)
        values.append(value)
        at += length
    return values


def _value(kind: int, data: bytes, at: int) -> tuple[Value, int]:
    if kind == 0:
        return None, 0
    if kind <= 6:
        length = _INTEGERS[kind]
        return int.from_bytes(_slice(data, at, length), signed=True), length
    if kind == 7:
        return float(struct.unpack(">d", _slice(data, at, 8))[0]), 8
    if kind in (8, 9):
        return kind - 8, 0
    if kind < 12:
        raise ValueError("a kind that has no meaning")
    length = (kind - 12) // 2
    part = _slice(data, at, length)
    return (part.decode() if kind % 2 else part), length
