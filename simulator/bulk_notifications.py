"""Notifications with many numbers, encoded as columns instead of value by value.

A DataChangeNotification (OPC 10000-4, 7.25.2) of Doubles in OPC UA Binary (OPC 10000-6, 5.2) has items of equal size,
so that numpy can fill in handles, values and timestamps.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from core.samples import Samples

_DOUBLE = 11  # built-in type of a Variant
_VALUE, _STATUS, _SOURCE_TIME, _SERVER_TIME = 0x01, 0x02, 0x04, 0x08  # encoding mask of a DataValue
_OVERFLOW = 0x0480  # InfoType DataValue and Overflow (OPC 10000-4, 7.39.1)
_EPOCH = 116_444_736_000_000_000  # 1970 in steps of 100 ns since 1601
_BEGIN = [("handle", "<u4"), ("mask", "u1"), ("type", "u1"), ("value", "<f8")]
_TIMES = [("source", "<i8"), ("server", "<i8")]
_GOOD = np.dtype([*_BEGIN, *_TIMES])  # Good status is omitted
_OTHER = np.dtype([*_BEGIN, ("status", "<u4"), *_TIMES])


class Item(NamedTuple):
    """A reporting monitored item."""

    id: int
    tag: int
    handle: int  # client handle
    queue_size: int


class UnpublishedValues:
    """Values of a subscription's items that are not published yet."""

    def __init__(self, tags: int) -> None:
        """``tags``: number of tags of the server."""
        self._place = np.full(tags, -1, np.int64)  # tag → index in the offered values
        self._id, self._tag, self._handle, self._size, self._queued = (
            np.empty(0, np.int64) for _ in range(5)
        )  # of items
        self._blocks: list[Samples] = []  # in order of time; their channels are indices of items

    def __bool__(self) -> bool:
        return bool(self._blocks)

    def monitor(self, items: Iterable[Item]) -> None:
        """Serve these items from now on; queued values of others are dropped."""
        before, columns = self._id, np.array(sorted(items), np.int64).reshape(-1, 4).T
        self._id, self._tag, self._handle, self._size = columns
        now = np.where(np.isin(before, self._id), np.searchsorted(self._id, before), -1)
        blocks = [replace(block, channel=now[block.channel].astype(np.int32)) for block in self._blocks]
        self._blocks = [kept for block in blocks if len(kept := block.part(block.channel >= 0))]
        self._queued = np.zeros(len(self._tag), np.int64)
        for block in self._blocks:
            self._queued[block.channel] += 1

    def offer(self, numbers: Samples) -> None:
        """Queue values, whose channels are tags, for the items that monitor these.

        A full queue drops its oldest value and sets Overflow.
        """
        self._place[numbers.channel] = np.arange(len(numbers))
        place = self._place[self._tag]
        self._place[numbers.channel] = -1
        items = np.flatnonzero(place >= 0)
        if not len(items):
            return
        self._blocks.append(replace(numbers.part(place[items]), channel=items.astype(np.int32)))
        self._queued[items] += 1
        over = items[self._queued[items] > self._size[items]]
        if len(over):
            self._drop(over)

    def take(self) -> bytes:
        """The body of a DataChangeNotification with all queued values."""
        blocks, self._blocks = self._blocks, []
        self._queued[:] = 0
        count = sum(map(len, blocks))
        items = [part for block in blocks for part in self._encoded(block)]
        return b"".join((count.to_bytes(4, "little"), *items, b"\xff\xff\xff\xff"))  # no DiagnosticInfos

    def _drop(self, items: NDArray[np.int64]) -> None:
        """Drop the oldest value of each of ``items`` and set the Overflow bit on the next one."""
        self._queued[items] -= 1
        dropped = marked = np.empty(0, np.int64)
        for k, block in enumerate(self._blocks):
            mark = np.isin(block.channel, np.setdiff1d(dropped, marked))
            status = np.where(mark, block.status | np.uint32(_OVERFLOW), block.status)
            marked = np.union1d(marked, block.channel[mark])
            drop = np.isin(block.channel, np.setdiff1d(items, dropped))
            dropped = np.union1d(dropped, block.channel[drop])
            self._blocks[k] = replace(block, status=status).part(~drop)
            if len(marked) == len(items):
                break
        self._blocks = [block for block in self._blocks if len(block)]

    def _encoded(self, block: Samples) -> tuple[bytes, bytes]:
        """Split into Good ones and others."""
        good = block.status == 0
        if good.all():
            return self._rows(block, _GOOD).tobytes(), b""
        others = self._rows(block.part(~good), _OTHER)
        others["mask"] |= _STATUS
        others["status"] = block.status[~good]
        return self._rows(block.part(good), _GOOD).tobytes(), others.tobytes()

    def _rows(self, block: Samples, dtype: np.dtype[Any]) -> NDArray[Any]:
        rows = np.empty(len(block), dtype)
        rows["handle"], rows["value"], rows["type"] = self._handle[block.channel], block.value, _DOUBLE
        rows["mask"] = _VALUE | _SOURCE_TIME | _SERVER_TIME
        rows["source"] = rows["server"] = block.time * 10 + _EPOCH
        return rows
