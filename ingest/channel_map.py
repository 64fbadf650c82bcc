"""A map from channel ids to values with array operations; a value that many channels share is stored once."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from core.batch import Int32s, Int64s

T = TypeVar("T", bound=Hashable)

_NO_VALUE = -1
_MOST_CHANNELS = 2**21  # in ranges that are read
_SPARE_VALUES = 64  # values that no channel has any more, before they are looked for


class ChannelMap(Generic[T]):
    """Values by channel id. An array of channels passed in must not contain duplicates."""

    def __init__(self) -> None:
        self._channels: Int32s = np.empty(0, np.int32)  # sorted
        self._value_index: Int64s = np.empty(0, np.int64)  # index in _values, of each channel
        self._values: list[T] = []
        self._index_of_value: dict[T, int] = {}

    def __len__(self) -> int:
        return len(self._channels)

    @property
    def channels(self) -> Int32s:
        """Channels that have a value, sorted."""
        return self._channels

    def get(self, channel: int) -> T | None:
        """The value of one channel."""
        (index,) = self._value_indices(np.array([channel], np.int32)).tolist()
        return None if index == _NO_VALUE else self._values[index]

    def has(self, channels: Int32s) -> NDArray[np.bool_]:
        """Mask of ``channels`` that have a value."""
        having: NDArray[np.bool_] = self._value_indices(channels) != _NO_VALUE
        return having

    def by_value(self, channels: Int32s) -> list[tuple[T | None, NDArray[np.intp]]]:
        """The values of ``channels``, each with the indices of the channels that share it."""
        return [
            (None if index == _NO_VALUE else self._values[index], at)
            for index, at in group_indices(self._value_indices(channels))
        ]

    def items(self) -> list[tuple[T, Int32s]]:
        """Every value, with the channels that share it."""
        return [(self._values[index], self._channels[at]) for index, at in group_indices(self._value_index)]

    def update(self, values: Iterable[tuple[T, Int32s]]) -> None:
        """Set the values of channels."""
        pairs = list(values)
        if not pairs:
            return
        changed = np.concatenate([channels for _, channels in pairs])
        value_indices = np.repeat([self._index(value) for value, _ in pairs], [len(channels) for _, channels in pairs])
        stay = ~np.isin(self._channels, changed)
        channels = np.concatenate((self._channels[stay], changed))
        order = np.argsort(channels, kind="stable")
        self._channels, self._value_index = (
            channels[order],
            np.concatenate((self._value_index[stay], value_indices))[order],
        )
        self._forget_unused()

    def pop(self, channels: Int32s) -> list[tuple[T, Int32s]]:
        """Remove the values of ``channels``; return the removed values with their channels."""
        removed = [(value, channels[at]) for value, at in self.by_value(channels) if value is not None]
        if removed:
            stay = ~np.isin(self._channels, channels)
            self._channels, self._value_index = self._channels[stay], self._value_index[stay]
        return removed

    def retain(self, values: Sequence[T]) -> None:
        """Remove all but these values."""
        stay = np.isin(self._value_index, np.array([self._index_of_value[value] for value in values], np.int64))
        self._channels, self._value_index = self._channels[stay], self._value_index[stay]

    def _value_indices(self, channels: Int32s) -> Int64s:
        at = np.searchsorted(self._channels, channels)
        at[at == len(self._channels)] = 0
        if not len(self._channels):
            return np.full(len(channels), _NO_VALUE, np.int64)
        return np.where(self._channels[at] == channels, self._value_index[at], _NO_VALUE)

    def _index(self, value: T) -> int:
        index = self._index_of_value.setdefault(value, len(self._values))
        if index == len(self._values):
            self._values.append(value)
        return index

    def _forget_unused(self) -> None:
        if len(self._values) <= 2 * len(self._channels) + _SPARE_VALUES:
            return
        used, self._value_index = np.unique(self._value_index, return_inverse=True)
        self._values = [self._values[index] for index in used.tolist()]
        self._index_of_value = {value: index for index, value in enumerate(self._values)}


def group_indices(keys: Int64s) -> list[tuple[int, NDArray[np.intp]]]:
    """Each distinct key with its indices."""
    if not len(keys):
        return []
    if (keys == keys[0]).all():
        return [(int(keys[0]), np.arange(len(keys)))]
    order = np.argsort(keys, kind="stable")
    sorted_ = keys[order]
    begins = np.flatnonzero(np.concatenate(([True], sorted_[1:] != sorted_[:-1])))
    return list(zip(sorted_[begins].tolist(), np.split(order, begins[1:]), strict=True))


def to_ranges(channels: Iterable[int]) -> list[int]:
    """Flat list of the first and last channel of each run of consecutive ids."""
    ids = np.unique(np.fromiter(channels, np.int64))
    if not len(ids):
        return []
    breaks = np.flatnonzero(np.diff(ids) != 1)
    begins, ends = np.concatenate(([0], breaks + 1)), np.concatenate((breaks, [len(ids) - 1]))
    return np.stack((ids[begins], ids[ends]), axis=1).ravel().tolist()


def from_ranges(ranges: Sequence[int]) -> NDArray[np.int64]:
    """The inverse of :func:`to_ranges`, sorted. Raises ValueError for invalid ranges or too many channels."""
    ends = np.array(ranges, np.int64).reshape(-1, 2)
    if len(ends) and not (np.all(ends[:, 0] <= ends[:, 1]) and np.all(ends[1:, 0] > ends[:-1, 1])):
        raise ValueError("ranges must be ascending")
    if len(ends) and float(np.sum(ends[:, 1].astype(float) - ends[:, 0] + 1)) > _MOST_CHANNELS:
        raise ValueError("too many channels")
    return np.concatenate([np.empty(0, np.int64), *(np.arange(first, last + 1) for first, last in ends)])
