"""Registers → values, in columns: index arrays are made once a read, then each answer is a few numpy calls.

Word orders are named by where the bytes of the number ABCD (A the highest) stand on the wire: ABCD as the
specification has it, CDAB with words swapped, BADC with the bytes of each word swapped, DCBA with both. Eight-byte
numbers follow the same rule over four words.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ingest.batch import Float64s, Int32s, is_rounded
from ingest.config.model import ModbusTag, WordOrder
from ingest.config.tags import width
from ingest.errors import DecodeError
from ingest.modbus.plan import Read

_DTYPES = {
    "int16": ">i2",
    "uint16": ">u2",
    "int32": ">i4",
    "uint32": ">u4",
    "int64": ">i8",
    "uint64": ">u8",
    "float32": ">f4",
    "float64": ">f8",
}


@dataclass(frozen=True, slots=True, eq=False)
class _Same:
    """Values of one type and word order in a read."""

    dtype: str
    word_order: WordOrder
    at: NDArray[np.intp]  # (n, words) register indices within the read
    into: slice  # where they go among the read's numbers


@dataclass(frozen=True, slots=True)
class _Text:
    tag: int
    dtype: str | None  # of the integer whose decimal form it is; None: a string
    at: slice
    word_order: WordOrder


class Decoder:
    """Decodes the answers to one read."""

    def __init__(self, read: Read, tags: Sequence[ModbusTag]) -> None:
        self._count = read.count
        self._bits = read.table in ("coil", "discrete")
        numbers = [i for i in read.tags if tags[i].kind != "text"]
        numbers.sort(key=lambda i: (tags[i].type, tags[i].word_order))
        self.tags: Int32s = np.array(numbers, np.int32)
        """Indices of the tags whose numbers :meth:`numbers` returns, in its order."""
        self._texts = [
            _Text(i, _DTYPES.get(tags[i].type), slice(first, first + width(tags[i])), tags[i].word_order)
            for i in read.tags
            if tags[i].kind == "text"
            for first in (tags[i].register - read.start,)
        ]
        self._same: list[_Same] = []
        done = 0
        for (kind, order), group in groupby(numbers, lambda i: (tags[i].type, tags[i].word_order)):
            members = list(group)
            into = slice(done, done + len(members))
            done += len(members)
            at = np.array([tags[i].register - read.start for i in members], np.intp)
            if kind == "bool":
                shift = np.array([tags[i].bit or 0 for i in members], np.intp)
                self._same.append(_Same("bool", order, np.stack((at, shift), axis=1), into))
            else:
                words = np.arange(width(tags[members[0]]))
                self._same.append(_Same(_DTYPES[kind], order, at[:, None] + words, into))
        self._long = [same for same in self._same if same.dtype in (">i8", ">u8")]
        scaled = [k for k, i in enumerate(numbers) if (tags[i].scale, tags[i].divisor, tags[i].offset) != (1, 1, 0)]
        # Only these: adding 0.0 would turn a -0.0 into 0.0.
        self._scaled = np.array(scaled, np.intp)
        self._scale = np.array([tags[numbers[k]].scale for k in scaled])
        self._divisor = np.array([tags[numbers[k]].divisor for k in scaled])
        self._offset = np.array([tags[numbers[k]].offset for k in scaled])

    def numbers(self, raw: NDArray[np.uint16]) -> Float64s:
        """Values (n,) of :attr:`tags` from an answer's registers (or 0/1 bits). Raises DecodeError if it is short."""
        if len(raw) < self._count:
            raise DecodeError(f"short answer: {len(raw)} of {self._count} {'bits' if self._bits else 'registers'}")
        values = np.empty(len(self.tags), np.float64)
        for same in self._same:
            if same.dtype == "bool":
                words = raw[same.at[:, 0]]
                shift = same.at[:, 1].astype(np.uint16)
                values[same.into] = (
                    words if self._bits else (_ordered(words[:, None], same.word_order)[:, 0] >> shift) & 1
                )
            else:
                with np.errstate(invalid="ignore"):  # a signalling NaN is a NaN
                    values[same.into] = _numbers(raw[same.at], same.word_order, same.dtype)
        if len(self._scaled):
            with np.errstate(over="ignore", invalid="ignore"):  # beyond the largest number: infinite
                values[self._scaled] = values[self._scaled] * self._scale / self._divisor + self._offset
        return values

    def rounded(self, raw: NDArray[np.uint16]) -> Int32s:
        """Those of :attr:`tags` whose integers no float64 is equal to: beyond 2^53."""
        found = [np.empty(0, np.int32)]
        for same in self._long:
            integers = _numbers(raw[same.at], same.word_order, same.dtype)
            found.append(self.tags[same.into][is_rounded(integers, integers.astype(np.float64))])
        return np.concatenate(found)

    def texts(self, raw: NDArray[np.uint16]) -> list[tuple[int, str]]:
        """(tag index, text) of the text tags: an integer's decimal form, a string up to the first NUL."""
        return [
            (t.tag, _text(raw[t.at], t.word_order) if t.dtype is None else _decimal(raw[t.at], t.word_order, t.dtype))
            for t in self._texts
        ]


def _ordered(words: NDArray[np.uint16], order: WordOrder) -> NDArray[np.uint16]:
    """Words (n, w) of each value, the most significant word and byte first."""
    if order in ("CDAB", "DCBA"):
        words = words[:, ::-1]
    return words.byteswap() if order in ("BADC", "DCBA") else words


def _numbers(words: NDArray[np.uint16], order: WordOrder, dtype: str) -> NDArray[Any]:
    """(n,) from the words (n, w) of each."""
    return np.ascontiguousarray(_ordered(words, order).astype(">u2")).view(dtype)[:, 0]


def _decimal(words: NDArray[np.uint16], order: WordOrder, dtype: str) -> str:
    return str(_numbers(words[None, :], order, dtype)[0])


def _text(words: NDArray[np.uint16], order: WordOrder) -> str:
    # Words of a string stand in reading order whatever the word order; only bytes are swapped.
    swapped = words.byteswap() if order in ("BADC", "DCBA") else words
    return swapped.astype(">u2").tobytes().split(b"\0")[0].decode("utf-8", errors="replace").rstrip()
