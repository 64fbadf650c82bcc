"""Registers → values, in columns: index arrays are made once a read, then each answer is a few numpy calls.

Word orders are named by where the bytes of the number ABCD (A the highest) stand on the wire: ABCD as the
specification has it, CDAB with words swapped, BADC with the bytes of each word swapped, DCBA with both. Eight-byte
numbers follow the same rule over four words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypeAlias

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
    "bool": ">u2",
}
_LONG = ("int64", "uint64")

_Key: TypeAlias = tuple[str, WordOrder]  # type, and byte order
_Scale: TypeAlias = tuple[float, float, float]  # scale, divisor and offset
_NO_TAGS = np.empty(0, np.int32)


@dataclass(frozen=True, slots=True, eq=False)
class _Same:
    """Numbers of one type and byte order."""

    at: NDArray[np.intp]  # (n, words) register indices, the most significant word first
    bit: NDArray[np.uint16]  # (n,) of a bool
    tags: Int32s  # (n,)
    read: Int32s  # (n,) which of the reads each is in


@dataclass(frozen=True, slots=True, eq=False)
class _Text:
    tag: int
    type: str
    order: WordOrder
    at: NDArray[np.intp]  # (words,)
    read: int


class Decoder:
    """Decodes the answer to one read; or those to several, laid one behind another (:meth:`of`)."""

    def __init__(self, read: Read, tags: Sequence[ModbusTag]) -> None:
        same: dict[_Key, list[int]] = {}
        texts: list[_Text] = []
        scales: dict[int, _Scale] = {}
        for i in read.tags:
            tag = tags[i]
            if tag.kind == "text":
                texts.append(_Text(i, tag.type, tag.word_order, np.array(_words(tag, read.start), np.intp), 0))
                continue
            order: WordOrder = "ABCD" if read.table in ("coil", "discrete") else tag.word_order
            same.setdefault((tag.type, order), []).append(i)
            if (scale := (tag.scale, tag.divisor, tag.offset)) != (1, 1, 0):
                scales[i] = scale
        columns = {
            key: _Same(
                np.array([_words(tags[i], read.start) for i in members], np.intp),
                np.array([tags[i].bit or 0 for i in members], np.uint16),
                np.array(members, np.int32),
                np.zeros(len(members), np.int32),
            )
            for key, members in same.items()
        }
        self._hold(columns, texts, scales, read.count, [np.array(read.tags, np.int32)])

    def _hold(
        self,
        same: Mapping[_Key, _Same],
        texts: Sequence[_Text],
        scales: Mapping[int, _Scale],
        count: int,
        covered: Sequence[Int32s],
    ) -> None:
        """``covered``: the tags of each read, which have ``count`` registers or bits together."""
        self._same, self._texts, self._scales, self._count = same, texts, scales, count
        self.covered: Int32s = np.concatenate(covered)
        """Indices of all tags, also those of texts, read by read."""
        self.covered_by = np.repeat(np.arange(len(covered), dtype=np.int32), [len(of) for of in covered])
        """Which of the reads each of :attr:`covered` is in."""
        self.tags: Int32s = np.concatenate([_NO_TAGS, *(of.tags for of in same.values())])
        """Indices of the tags whose numbers :meth:`numbers` returns, in its order."""
        self.read: Int32s = np.concatenate([_NO_TAGS, *(of.read for of in same.values())])
        """Which of the reads each of :attr:`tags` is in."""
        # Only these: adding 0.0 would turn a -0.0 into 0.0.
        self._scaled = np.flatnonzero(np.isin(self.tags, list(scales)))
        of_each = np.array([scales[i] for i in self.tags[self._scaled].tolist()], np.float64)
        self._scale, self._divisor, self._offset = of_each.reshape(-1, 3).T

    @classmethod
    def of(cls, decoders: Sequence[Decoder]) -> Decoder:
        """For what each of these decodes, one behind another."""
        same: dict[_Key, list[_Same]] = {}
        texts: list[_Text] = []
        scales: dict[int, _Scale] = {}
        count = 0
        for number, one in enumerate(decoders):
            for key, of in one._same.items():
                same.setdefault(key, []).append(_Same(of.at + count, of.bit, of.tags, of.read + np.int32(number)))
            texts += [replace(text, at=text.at + count, read=number) for text in one._texts]
            scales |= one._scales
            count += one._count
        columns = {
            key: _Same(*(np.concatenate([getattr(one, f.name) for one in of]) for f in fields(_Same)))
            for key, of in same.items()
        }
        made = cls.__new__(cls)
        made._hold(columns, texts, scales, count, [one.covered for one in decoders])
        return made

    def numbers(self, raw: NDArray[np.uint16]) -> Float64s:
        """Values (n,) of :attr:`tags` from registers (or 0/1 for each bit). Raises DecodeError if they are too few."""
        if len(raw) < self._count:
            raise DecodeError(f"short answer: {len(raw)} of {self._count} registers")
        values = np.empty(len(self.tags), np.float64)
        done = 0
        for (kind, order), same in self._same.items():
            found = _numbers(raw[same.at], order, kind)
            with np.errstate(invalid="ignore"):  # a signalling NaN is a NaN
                values[done : done + len(found)] = found >> same.bit & 1 if kind == "bool" else found
            done += len(found)
        if len(self._scaled):
            with np.errstate(over="ignore", invalid="ignore"):  # beyond the largest number: infinite
                values[self._scaled] = values[self._scaled] * self._scale / self._divisor + self._offset
        return values

    def rounded(self, raw: NDArray[np.uint16]) -> list[tuple[int, int]]:
        """(tag, its read) of each of :attr:`tags` whose integer no float64 is equal to: beyond 2^53."""
        found: list[tuple[int, int]] = []
        for (kind, order), same in self._same.items():
            if kind in _LONG:
                integers = _numbers(raw[same.at], order, kind)
                which = is_rounded(integers, integers.astype(np.float64))
                found += zip(same.tags[which].tolist(), same.read[which].tolist(), strict=True)
        return found

    def texts(self, raw: NDArray[np.uint16]) -> list[tuple[int, int, str]]:
        """(tag, its read, text) of the text tags: an integer's decimal form, a string up to the first NUL."""
        return [(t.tag, t.read, _text(raw[t.at], t.order, t.type)) for t in self._texts]


def _words(tag: ModbusTag, start: int) -> range:
    """Where a value's words stand in a read from ``start`` on: a number's from the most significant one on."""
    first = tag.register - start
    words = range(first, first + width(tag))
    # Those of a string stand in reading order whatever the word order; only bytes are swapped.
    return words[::-1] if tag.word_order in ("CDAB", "DCBA") and tag.type != "string" else words


def _ordered(words: NDArray[np.uint16], order: WordOrder) -> NDArray[np.uint16]:
    """Words with their most significant byte first."""
    return np.ascontiguousarray(words.byteswap() if order in ("BADC", "DCBA") else words, ">u2")


def _numbers(words: NDArray[np.uint16], order: WordOrder, kind: str) -> NDArray[Any]:
    """(n,) from the words (n, w) of each, the most significant one first."""
    return _ordered(words, order).view(_DTYPES[kind])[:, 0]


def _text(words: NDArray[np.uint16], order: WordOrder, kind: str) -> str:
    if kind != "string":
        return str(_numbers(words[None, :], order, kind)[0])
    return _ordered(words, order).tobytes().split(b"\0")[0].decode("utf-8", errors="replace").rstrip()
