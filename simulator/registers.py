"""A device's registers as numpy arrays, and the values that a master decodes from them."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from core.config.sources import INTEGERS, NUMBERS, WordOrder
from simulator.tags import SimTag

_SIZE = 65_536
_CACHED_READS = 10_000  # contents of ranges of registers


class Registers:
    """Registers and bits of one device. Tags are indices into the plant's list."""

    def __init__(self, tags: list[SimTag], members: list[int]) -> None:
        self.image = {table: np.zeros(_SIZE, np.uint16) for table in ("coil", "discrete", "input", "holding")}
        self.legal = {table: np.zeros(_SIZE, bool) for table in self.image}
        self._tags = tags
        self._places: dict[str, list[tuple[int, int, int]]] = {table: [] for table in self.image}
        self._set_points: dict[int, tuple[int, int]] = {}  # first holding register → (registers, tag)
        self.decoded = np.zeros(len(tags))  # decoded value by tag
        self.texts: dict[int, str] = {}
        # load mode has thousands of similar tags: encoded together
        self._floats = np.array([i for i in members if _plain_float(tags[i])], np.int64)
        self._float_at = np.array([tags[i].register.address for i in self._floats], np.int64)
        self._others = [i for i in members if not _plain_float(tags[i])]
        for i in members:
            register = tags[i].register
            assert register is not None
            length = len(_encode(tags[i], 0.0)[0]) if register.type != "string" else register.length
            self._places[register.table].append((register.address, register.address + length, i))
            self.legal[register.table][register.address : register.address + length] = True
            if tags[i].writable and register.table == "holding":
                self._set_points[register.address] = (length, i)
        self._index = {table: _Index(places) for table, places in self._places.items()}
        for table in ("input", "holding", "coil", "discrete"):
            _bridge(self.legal[table])
        # A master repeats the same reads.
        self.covered = lru_cache(_CACHED_READS)(self._covered)
        self.readable = lru_cache(_CACHED_READS)(self._readable)

    def update(self, values: NDArray[np.float64], texts: dict[int, str]) -> None:
        """Write the plant's current values into the registers."""
        if len(self._floats):
            single = values[self._floats].astype(">f4")
            words = single.view(">u2").reshape(-1, 2)
            self.image["holding"][self._float_at] = words[:, 0]
            self.image["holding"][self._float_at + 1] = words[:, 1]
            self.decoded[self._floats] = single
        for i in self._others:
            register = self._tags[i].register
            assert register is not None
            image = self.image[register.table]
            at = register.address
            if register.type == "string":
                content = texts[i].encode()[: 2 * register.length].ljust(2 * register.length, b"\0")
                image[at : at + register.length] = np.frombuffer(content, ">u2")
                self.texts[i] = texts[i]
            elif register.type == "bool" and register.bit is not None:
                mask = np.uint16(1 << register.bit)
                word = image[at] | mask if values[i] else image[at] & ~mask
                image[at] = word
                self.decoded[i] = float(bool(values[i]))
            else:
                words, self.decoded[i] = _encode(self._tags[i], float(values[i]))
                image[at : at + len(words)] = words

    def written(self, start: int, words: list[int]) -> list[tuple[int, float]] | None:
        """Set points (tag, value) changed by a write to holding registers from ``start``.

        None if it includes other registers, or only a part of a set point.
        """
        values, at = [], 0
        while at < len(words):
            length, tag = self._set_points.get(start + at, (0, -1))
            if not length or at + length > len(words):
                return None
            values.append((tag, _decode(self._tags[tag], np.array(words[at : at + length], np.uint16))))
            at += length
        return values

    def accepts(self, tag: int, value: float) -> bool:
        """Return whether an operator may set a tag to ``value``."""
        return self._tags[tag].accepts(value)

    def _covered(self, table: str, start: int, count: int) -> NDArray[np.int64]:
        """Tags completely inside a read."""
        return self._index[table].within(start, start + count)

    def _readable(self, table: str, start: int, count: int) -> bool:
        """Return whether all registers of a read exist."""
        legal = self.legal[table][start : start + count]
        return len(legal) == count and bool(legal.all())


class _Index:
    def __init__(self, places: list[tuple[int, int, int]]) -> None:
        ordered = sorted(places)
        self._first = np.array([p[0] for p in ordered], np.int64)
        self._end = np.array([p[1] for p in ordered], np.int64)
        self._tag = np.array([p[2] for p in ordered], np.int64)

    def within(self, start: int, end: int) -> NDArray[np.int64]:
        lo, hi = np.searchsorted(self._first, (start, end))
        part = slice(int(lo), int(hi))
        tags: NDArray[np.int64] = self._tag[part][self._end[part] <= end]
        return tags


def _plain_float(tag: SimTag) -> bool:
    register = tag.register
    return register is not None and (register.table, register.type, register.word_order) == (
        "holding",
        "float32",
        "ABCD",
    )


def _encode(tag: SimTag, value: float) -> tuple[NDArray[Any], float]:
    """The registers of ``value``, and the value decoded from them."""
    register = tag.register
    assert register is not None
    if register.type == "bool":
        return np.array([value != 0], np.uint16), float(value != 0)
    count, dtype = NUMBERS[register.type]
    if register.type in INTEGERS:
        signed = dtype[1] == "i"
        bits = 16 * count - signed
        integer = min(max(round(value * register.divisor), -(1 << bits) if signed else 0), (1 << bits) - 1)
        image, decoded = integer.to_bytes(2 * count, signed=signed), integer / register.divisor
    else:
        single = np.array([value], dtype)
        image, decoded = single.tobytes(), float(single[0])
    return _ordered(np.frombuffer(image, ">u2").astype(np.uint16), register.word_order), decoded


def _decode(tag: SimTag, words: NDArray[np.uint16]) -> float:
    """Decode a number from registers: the inverse of :func:`_encode`."""
    register = tag.register
    assert register is not None
    image, dtype = _ordered(words, register.word_order).astype(">u2").tobytes(), NUMBERS[register.type].dtype
    if register.type in INTEGERS:
        return int.from_bytes(image, signed=dtype[1] == "i") / register.divisor
    return float(np.frombuffer(image, dtype)[0])


def _ordered(words: NDArray[np.uint16], order: WordOrder) -> NDArray[np.uint16]:
    """Most significant word first ↔ a device's word order (its own inverse)."""
    if order in ("CDAB", "DCBA"):
        words = words[::-1]
    return words.byteswap() if order in ("BADC", "DCBA") else words


def _bridge(legal: NDArray[np.bool_]) -> None:
    """Unused registers between used ones are readable, as in most devices; those after the last one are not."""
    used = np.flatnonzero(legal)
    if len(used):
        legal[: used[-1] + 1] = True
