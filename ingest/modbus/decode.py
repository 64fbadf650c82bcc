"""Vectorised decoding of registers: index arrays are built once per read, then a response needs a few numpy calls.

Word orders are named by the order of the bytes ABCD (A most significant) on the wire: ABCD as in the
specification has it, CDAB with words swapped, BADC with the bytes of each word swapped, DCBA with both. Numbers of
three and four words follow the same rule.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from core.batch import Float64s, Int32s, is_rounded
from core.config.sources import INTEGERS, NUMBERS, STRINGS, ModbusTag, WordOrder
from core.errors import DecodeError
from ingest.modbus.plan import Read
from ingest.no_data import NoData

_INEXACT_TYPES = tuple(
    name for name in INTEGERS if 16 * NUMBERS[name].registers > 53
)  # bits that a float64 holds exactly
# The numpy type, and the number of words that it has more than registers
_DTYPES = {
    name: (number.dtype, np.dtype(number.dtype).itemsize // 2 - number.registers) for name, number in NUMBERS.items()
}
_PADDING = "\0 \t\r\n"  # at the end of a text
UNDECODABLE = "\ufffd"  # in place of bytes that are no text

_Key: TypeAlias = tuple[str, WordOrder]  # type, and byte order
_Scale: TypeAlias = tuple[float, float, float]  # scale, divisor and offset
_NO_TAGS = np.empty(0, np.int32)


@dataclass(frozen=True, slots=True, eq=False)
class _NumberColumns:
    """Numbers of one type and byte order."""

    at: NDArray[np.intp]  # (n, words) register indices, the most significant word first
    bit: NDArray[np.uint16]  # (n,) bit of a bool
    tags: Int32s  # (n,) tag indices
    read: Int32s  # (n,) index of the read that has it


@dataclass(frozen=True, slots=True, eq=False)
class _Text:
    tag: int
    type: str
    order: WordOrder
    at: NDArray[np.intp]  # (words,)
    read: int


class Decoder:
    """Decodes the response to one read, or the concatenated responses to several (:meth:`combined`)."""

    def __init__(self, read: Read, tags: Sequence[ModbusTag]) -> None:
        numbers: dict[_Key, list[int]] = {}
        texts: list[_Text] = []
        scales: dict[int, _Scale] = {}
        for i in read.tags:
            tag = tags[i]
            if tag.kind == "text":
                texts.append(_Text(i, tag.type, tag.word_order, np.array(_words(tag, read.start), np.intp), 0))
                continue
            order: WordOrder = "ABCD" if read.table in ("coil", "discrete") else tag.word_order
            numbers.setdefault((tag.type, order), []).append(i)
            if (scale := (tag.scale, tag.divisor, tag.offset)) != (1, 1, 0):
                scales[i] = scale
        columns = {
            key: _NumberColumns(
                np.array([_words(tags[i], read.start) for i in members], np.intp),
                np.array([tags[i].bit or 0 for i in members], np.uint16),
                np.array(members, np.int32),
                np.zeros(len(members), np.int32),
            )
            for key, members in numbers.items()
        }
        no_data = {i: tags[i].no_data for i in read.tags if tags[i].no_data}
        self._set_columns(columns, texts, scales, no_data, read.count, [np.array(read.tags, np.int32)])

    def _set_columns(
        self,
        numbers: Mapping[_Key, _NumberColumns],
        texts: Sequence[_Text],
        scales: Mapping[int, _Scale],
        no_data: Mapping[int, str],
        count: int,
        covered: Sequence[Int32s],
    ) -> None:
        """Set the columns. ``covered``: the tags of each read; ``count``: registers or bits of all reads together."""
        self._numbers, self._texts, self._scales, self._count = numbers, texts, scales, count
        self._no_data_cells = no_data
        self.covered: Int32s = np.concatenate(covered)
        """Indices of all tags, also those of texts, read by read."""
        self.covered_by = np.repeat(np.arange(len(covered), dtype=np.int32), [len(tags) for tags in covered])
        """Index of the read of each of :attr:`covered`."""
        self.tags: Int32s = np.concatenate([_NO_TAGS, *(columns.tags for columns in numbers.values())])
        """Indices of the tags whose numbers :meth:`numbers` returns, in its order."""
        self.read: Int32s = np.concatenate([_NO_TAGS, *(columns.read for columns in numbers.values())])
        """Index of the read of each of :attr:`tags`."""
        self._no_data_rows = np.flatnonzero(np.isin(self.tags, list(no_data)))
        self._no_data = NoData((row, no_data[self.tags[row]]) for row in self._no_data_rows.tolist())
        # Not all tags: adding 0.0 would turn a -0.0 into 0.0.
        self._scaled = np.flatnonzero(np.isin(self.tags, list(scales)))
        factors = np.array([scales[i] for i in self.tags[self._scaled].tolist()], np.float64)
        self._scale, self._divisor, self._offset = factors.reshape(-1, 3).T

    @classmethod
    def combined(cls, decoders: Sequence[Decoder]) -> Decoder:
        """A decoder for the concatenated responses of these decoders."""
        numbers: dict[_Key, list[_NumberColumns]] = {}
        texts: list[_Text] = []
        scales: dict[int, _Scale] = {}
        no_data: dict[int, str] = {}
        count = 0
        for read, decoder in enumerate(decoders):
            for key, part in decoder._numbers.items():
                numbers.setdefault(key, []).append(
                    _NumberColumns(part.at + count, part.bit, part.tags, part.read + np.int32(read))
                )
            texts += [replace(text, at=text.at + count, read=read) for text in decoder._texts]
            scales |= decoder._scales
            no_data |= decoder._no_data_cells
            count += decoder._count
        columns = {
            key: _NumberColumns(
                *(np.concatenate([getattr(part, f.name) for part in parts]) for f in fields(_NumberColumns))
            )
            for key, parts in numbers.items()
        }
        combined = cls.__new__(cls)
        combined._set_columns(columns, texts, scales, no_data, count, [decoder.covered for decoder in decoders])
        return combined

    def numbers(self, raw: NDArray[np.uint16]) -> Float64s:
        """Values (n,) of :attr:`tags` from registers (or 0/1 for each bit); NaN: the device has no value.

        Raises DecodeError if there are too few registers.
        """
        if len(raw) < self._count:
            raise DecodeError(f"short response: {len(raw)} of {self._count} registers")
        values = np.empty(len(self.tags), np.float64)
        end = 0
        for (kind, order), numbers in self._numbers.items():
            decoded = _numbers(raw[numbers.at], order, kind)
            with np.errstate(invalid="ignore"):  # a signalling NaN is a NaN
                values[end : end + len(decoded)] = decoded >> numbers.bit & 1 if kind == "bool" else decoded
            end += len(decoded)
        rows = self._no_data_rows
        if len(rows):
            values[rows[self._no_data.mask(rows, values[rows])]] = np.nan
        if len(self._scaled):
            with np.errstate(over="ignore", invalid="ignore"):  # beyond the largest number: infinite
                values[self._scaled] = values[self._scaled] * self._scale / self._divisor + self._offset
        return values

    def rounded(self, raw: NDArray[np.uint16]) -> list[tuple[int, int]]:
        """(tag, its read) of each of :attr:`tags` whose integer float64 cannot hold exactly: beyond 2^53."""
        rounded: list[tuple[int, int]] = []
        for (kind, order), numbers in self._numbers.items():
            if kind in _INEXACT_TYPES:
                integers = _numbers(raw[numbers.at], order, kind)
                rows = is_rounded(integers, integers.astype(np.float64))
                rounded += zip(numbers.tags[rows].tolist(), numbers.read[rows].tolist(), strict=True)
        return rounded

    def texts(self, raw: NDArray[np.uint16]) -> list[tuple[int, int, str]]:
        """(tag, its read, text) of the text tags: a string, or an integer's decimal form."""
        return [(t.tag, t.read, _text(raw[t.at], t.order, t.type)) for t in self._texts]


def _words(tag: ModbusTag, start: int) -> range:
    """Indices of a value's words in a read from ``start`` on; of a number, the most significant one first."""
    first = tag.register - start
    words = range(first, first + tag.width)
    # The words of a string are in reading order; its word order swaps bytes only.
    return words[::-1] if tag.word_order in ("CDAB", "DCBA") and tag.type not in STRINGS else words


def _ordered(words: NDArray[np.uint16], order: WordOrder) -> NDArray[np.uint16]:
    """Words with their most significant byte first."""
    return np.ascontiguousarray(words.byteswap() if order in ("BADC", "DCBA") else words, ">u2")


def _numbers(words: NDArray[np.uint16], order: WordOrder, kind: str) -> NDArray[Any]:
    """Numbers (n,) from their words (n, w), the most significant one first."""
    dtype, padding = _DTYPES[kind]
    ordered = _ordered(words, order)
    if not padding:
        return ordered.view(dtype)[:, 0]
    shifted = np.zeros((len(ordered), ordered.shape[1] + padding), ">u2")
    shifted[:, :-padding] = ordered
    return shifted.view(dtype)[:, 0] >> 16 * padding  # which extends the sign


def _text(words: NDArray[np.uint16], order: WordOrder, kind: str) -> str:
    if kind not in STRINGS:
        return str(_numbers(words[None, :], order, kind)[0])
    encoded = _ordered(words, order).tobytes()
    if kind == "stringz":
        encoded = encoded.split(b"\0")[0]
    text = encoded.decode("utf-16-be" if kind == "string16" else "utf-8", errors="replace")
    return text.rstrip(_PADDING).replace("\0", UNDECODABLE)
