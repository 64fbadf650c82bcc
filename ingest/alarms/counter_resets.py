"""Events for counters that are reset."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

import numpy as np

from core.batch import Event
from core.config.sources import Tag
from core.counters import wraps
from core.samples import Samples
from core.status_codes import BAD

_MIN_INTERVAL_US = 60_000_000  # between two events of a channel: one that is no counter must not fill the disk


class CounterResets:
    """Last readings of a source's counters."""

    def __init__(
        self, tags: Iterable[Tag], channel_ids: Mapping[str, int], earlier: CounterResets | None = None
    ) -> None:
        """``earlier``: counters of the former configuration, whose last readings are kept."""
        counters = {channel_ids[tag.name]: tag.wraps_at for tag in tags if tag.kind == "counter"}
        self._ids = np.array(sorted(counters), np.int32)
        self._wraps_at = np.array([counters[channel] for channel in self._ids.tolist()], np.float64)
        n = len(self._ids)
        self._time, self._value = np.full(n, np.iinfo(np.int64).min), np.full(n, np.nan)
        self._event_time = np.full(n, np.iinfo(np.int64).min // 2)
        if earlier is not None:
            _, index, index_before = np.intersect1d(self._ids, earlier._ids, return_indices=True)
            for name in ("_time", "_value", "_event_time"):
                getattr(self, name)[index] = getattr(earlier, name)[index_before]

    def __len__(self) -> int:
        """The number of counters."""
        return len(self._ids)

    def note(self) -> str:
        """The last readings, for :meth:`restore`."""
        has_value = np.isfinite(self._value)
        return json.dumps([column[has_value].tolist() for column in (self._ids, self._time, self._value)])

    def restore(self, note: str) -> None:
        """Continue from the last readings in the note of an earlier process."""
        ids, time, value = json.loads(note)
        _, index, row = np.intersect1d(self._ids, np.array(ids, np.int32), return_indices=True)
        self._time[index] = np.array(time, np.int64)[row]
        self._value[index] = np.array(value, np.float64)[row]

    def events(self, samples: Samples) -> list[Event]:
        """An event ``counter_reset`` for each counter that is lower than before; at most one a minute of a channel.

        Samples that are Bad, or not later than the last one, do not count.
        """
        if not len(self._ids):
            return []
        index = np.minimum(np.searchsorted(self._ids, samples.channel), len(self._ids) - 1)
        rows = np.flatnonzero(
            (self._ids[index] == samples.channel) & (samples.status < BAD) & np.isfinite(samples.value)
        )
        rows = rows[samples.time[rows] > self._time[index[rows]]]
        if not len(rows):
            return []
        rows = rows[np.lexsort((samples.time[rows], index[rows]))]
        index, time, value = index[rows], samples.time[rows], samples.value[rows]
        before, since = np.roll(value, 1), np.roll(time, 1)
        first = np.append(True, index[1:] != index[:-1])
        before[first], since[first] = self._value[index[first]], self._time[index[first]]
        last = np.roll(first, -1)
        self._time[index[last]], self._value[index[last]] = time[last], value[last]
        events = []
        for row in np.flatnonzero((value < before) & ~wraps(before, value, self._wraps_at[index])).tolist():
            at, counter = int(time[row]), int(index[row])
            if at >= self._event_time[counter] + _MIN_INTERVAL_US:
                self._event_time[counter] = at
                detail = {"before": float(before[row]), "value": float(value[row]), "since": int(since[row])}
                text = f"{before[row]:.15g} → {value[row]:.15g}"
                events.append(Event("counter_reset", at, int(self._ids[counter]), text=text, detail=detail))
        return events
