"""One value for many channels: kept once for all that share it, and looked up, set and removed in array operations."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from ingest.batch import Int32s, Int64s

T = TypeVar("T", bound=Hashable)

_NONE = -1
_SPARE = 64  # values that no channel has any more, before they are looked for


class ByChannel(Generic[T]):
    """Values by channel id. Arrays of channels that are given must have each channel once."""

    def __init__(self) -> None:
        self._channels: Int32s = np.empty(0, np.int32)  # sorted
        self._which: Int64s = np.empty(0, np.int64)  # place in _values, of each channel
        self._values: list[T] = []
        self._places: dict[T, int] = {}

    def __len__(self) -> int:
        return len(self._channels)

    @property
    def channels(self) -> Int32s:
        """Those that have a value, sorted."""
        return self._channels

    def get(self, channel: int) -> T | None:
        """The value of one channel."""
        (place,) = self._which_of(np.array([channel], np.int32)).tolist()
        return None if place == _NONE else self._values[place]

    def has(self, channels: Int32s) -> NDArray[np.bool_]:
        """Which of ``channels`` have a value."""
        having: NDArray[np.bool_] = self._which_of(channels) != _NONE
        return having

    def of(self, channels: Int32s) -> list[tuple[T | None, NDArray[np.intp]]]:
        """The values of ``channels``, each with where those stand that share it."""
        return [(None if place == _NONE else self._values[place], at) for place, at in groups(self._which_of(channels))]

    def all(self) -> list[tuple[T, Int32s]]:
        """Every value, with the channels that share it."""
        return [(self._values[place], self._channels[at]) for place, at in groups(self._which)]

    def put(self, values: Iterable[tuple[T, Int32s]]) -> None:
        """Give channels other values, in place of those that they had."""
        given = list(values)
        if not given:
            return
        fresh = np.concatenate([channels for _, channels in given])
        which = np.repeat([self._place(value) for value, _ in given], [len(channels) for _, channels in given])
        stay = ~np.isin(self._channels, fresh)
        channels = np.concatenate((self._channels[stay], fresh))
        order = np.argsort(channels, kind="stable")
        self._channels, self._which = channels[order], np.concatenate((self._which[stay], which))[order]
        self._forget_unused()

    def take(self, channels: Int32s) -> list[tuple[T, Int32s]]:
        """Remove the values of ``channels``; returns those that there were."""
        taken = [(value, channels[at]) for value, at in self.of(channels) if value is not None]
        if taken:
            stay = ~np.isin(self._channels, channels)
            self._channels, self._which = self._channels[stay], self._which[stay]
        return taken

    def keep(self, values: Sequence[T]) -> None:
        """Remove all but these values."""
        stay = np.isin(self._which, np.array([self._places[value] for value in values], np.int64))
        self._channels, self._which = self._channels[stay], self._which[stay]

    def _which_of(self, channels: Int32s) -> Int64s:
        at = np.searchsorted(self._channels, channels)
        at[at == len(self._channels)] = 0
        if not len(self._channels):
            return np.full(len(channels), _NONE, np.int64)
        return np.where(self._channels[at] == channels, self._which[at], _NONE)

    def _place(self, value: T) -> int:
        place = self._places.setdefault(value, len(self._values))
        if place == len(self._values):
            self._values.append(value)
        return place

    def _forget_unused(self) -> None:
        if len(self._values) <= 2 * len(self._channels) + _SPARE:
            return
        used, self._which = np.unique(self._which, return_inverse=True)
        self._values = [self._values[place] for place in used.tolist()]
        self._places = {value: place for place, value in enumerate(self._values)}


def groups(keys: Int64s) -> list[tuple[int, NDArray[np.intp]]]:
    """Each of ``keys``, and where it stands."""
    if not len(keys):
        return []
    if (keys == keys[0]).all():
        return [(int(keys[0]), np.arange(len(keys)))]
    order = np.argsort(keys, kind="stable")
    sorted_ = keys[order]
    begins = np.flatnonzero(np.concatenate(([True], sorted_[1:] != sorted_[:-1])))
    return list(zip(sorted_[begins].tolist(), np.split(order, begins[1:]), strict=True))


def to_ranges(channels: Iterable[int]) -> list[int]:
    """First and last channel of each run of consecutive ones, one after another."""
    ids = np.unique(np.fromiter(channels, np.int64))
    if not len(ids):
        return []
    breaks = np.flatnonzero(np.diff(ids) != 1)
    begins, ends = np.concatenate(([0], breaks + 1)), np.concatenate((breaks, [len(ids) - 1]))
    return np.stack((ids[begins], ids[ends]), axis=1).ravel().tolist()


def from_ranges(ranges: Sequence[int], most: int = 2**24) -> NDArray[np.int64]:
    """The channels, sorted. Raises ValueError where these are no ranges, or more than ``most`` channels."""
    ends = np.array(ranges, np.int64).reshape(-1, 2)
    if len(ends) and not (np.all(ends[:, 0] <= ends[:, 1]) and np.all(ends[1:, 0] > ends[:-1, 1])):
        raise ValueError("ranges that do not rise")
    if len(ends) and float(np.sum(ends[:, 1].astype(float) - ends[:, 0] + 1)) > most:
        raise ValueError("too many channels")
    return np.concatenate([np.empty(0, np.int64), *(np.arange(first, last + 1) for first, last in ends)])
