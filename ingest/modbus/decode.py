"""Registers → values, in columns: index arrays are made once a read, then each answer is a few numpy calls.

Word orders are named by where the bytes of the number ABCD (A the highest) stand on the wire: ABCD as the
specification has it, CDAB with words swapped, BADC with the bytes of each word swapped, DCBA with both. Eight-byte
numbers follow the same rule over four words.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from ingest.batch import Float64s
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
    at: slice
    word_order: WordOrder


class Decoder:
    """Decodes the answers to one read."""

    def __init__(self, read: Read, tags: Sequence[ModbusTag]) -> None:
        self._count = read.count
        self._bits = read.table in ("coil", "discrete")
        numbers = [i for i in read.tags if tags[i].type != "string"]
        numbers.sort(key=lambda i: (tags[i].type, tags[i].word_order))
        self.tags: NDArray[np.int32] = np.array(numbers, np.int32)
        """Indices of the tags whose numbers :meth:`numbers` returns, in its order."""
        self._texts = [
            _Text(i, slice(first := tags[i].register - read.start, first + width(tags[i])), tags[i].word_order)
            for i in read.tags
            if tags[i].type == "string"
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
                wire = _ordered(raw[same.at], same.word_order).astype(">u2")
                with np.errstate(invalid="ignore"):  # a signalling NaN is a NaN
                    values[same.into] = np.ascontiguousarray(wire).view(same.dtype)[:, 0]
        if len(self._scaled):
            with np.errstate(over="ignore", invalid="ignore"):  # beyond the largest number: infinite
                values[self._scaled] = values[self._scaled] * self._scale / self._divisor + self._offset
        return values

    def texts(self, raw: NDArray[np.uint16]) -> list[tuple[int, str]]:
        """(tag index, text) of the string tags; two characters a register, up to the first NUL."""
        return [(text.tag, _text(raw[text.at], text.word_order)) for text in self._texts]


def _ordered(words: NDArray[np.uint16], order: WordOrder) -> NDArray[np.uint16]:
    """Words (n, w) of each value, the most significant word and byte first."""
    if order in ("CDAB", "DCBA"):
        words = words[:, ::-1]
    return words.byteswap() if order in ("BADC", "DCBA") else words


def _text(words: NDArray[np.uint16], order: WordOrder) -> str:
    # Words of a string stand in reading order whatever the word order; only bytes are swapped.
    swapped = words.byteswap() if order in ("BADC", "DCBA") else words
    return swapped.astype(">u2").tobytes().split(b"\0")[0].decode("utf-8", errors="replace").rstrip()
