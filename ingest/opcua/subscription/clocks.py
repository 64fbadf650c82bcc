"""Clocks of a source, of its messages and of its samples, beside ours."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from time import monotonic

import numpy as np

from core.batch import Event, Int64s
from core.clock import boot_seconds, machine_clocks
from core.timestamps import now_us

_STEADY = 0.5  # s, that a message needs more or less time than another
_LONGEST_DELAY = 30.0  # s, of a message; one that is older has another clock
_NOTED = 0.1  # s, smaller changes are not noted


class ClockSkew:
    """Detects differences between a source's clock and ours, per interval: one late message proves nothing.

    The clock of its messages and that of its samples are usually the same. Gaps begin and end by the clock of the
    samples. The clock of the messages is the better measure of it while it is proven to go on steadily: a message may
    come late. Where it was set, as by a restart of the server, our steady clock tells how long an outage was.
    """

    def __init__(self, limit: float, interval: float = 10.0, note: str = "{}") -> None:
        """``note``: of the process before."""
        self._limit = limit  # s
        self._interval = interval  # s
        self._until = monotonic() + interval
        self._smallest = {"server": np.inf, "source": np.inf}  # s, smallest signed difference of either clock
        self._last_offsets: dict[str, float] = json.loads(note)  # s, of the last interval with data
        self._noted = dict(self._last_offsets)
        self._boot = _boot()  # µs, of our wall clock when the steady one began
        self._skewed = {"server": False, "source": False}
        self._lead: int | None = None  # µs, of sample times before the publish time of their message, smallest one
        self._last_lead: int | None = None  # of the last interval with data
        self._late = self._last_late = 0  # µs, in this interval and the last one, see :meth:`observe_late`
        self._session, self._session_began = 0, monotonic()  # µs by the server's clock, s

    def start_server(self) -> None:
        """Forget what is known of the clocks of the server before; events are by difference from it."""
        self._smallest, self._last_offsets = dict.fromkeys(self._smallest, np.inf), {}
        self._lead = self._last_lead = None
        self._late = self._last_late = 0

    def set_server_clock(self, time: int) -> None:
        """Set the server's current time (µs) if nothing is known of its clocks; 0: unknown."""
        if time and not self.is_known:
            self.observe("server", time, now_us())

    def begin_session(self, server_time: int) -> None:
        """Messages from before this time of the server (µs, 0: unknown) come late for a while, and prove no clock."""
        self._session, self._session_began = server_time, monotonic()

    def observe_message(self, publish_time: int, arrival: int) -> None:
        """Observe the time (µs) of a message."""
        if not self._is_from_before(publish_time):
            self.observe("server", publish_time, arrival)

    def observe_samples(self, time: int, publish_time: int, arrival: int) -> None:
        """Observe the time (µs) of a sample in a message; ``publish_time``: 0 if unknown."""
        if not self._is_from_before(publish_time):
            self.observe("source", time, arrival)
        if publish_time:
            lead = time - publish_time
            self._lead = lead if self._lead is None else min(self._lead, lead, key=abs)

    def observe_late(self, time: Int64s, published: int) -> None:
        """Observe times (µs) of new samples in a message; ``published``: when (µs) the message before was published.

        A server that is slow, or reads its devices slowly, queues samples after it has published newer ones. What is
        later than the limit has another clock.
        """
        late = self._by_sample_clock(published)[0] - time
        self._late = max(self._late, int(late[late <= self._limit * 1e6].max(initial=0)))

    def sample_times(self, server_time: int) -> tuple[int, int]:
        """The earliest and the latest time (µs) of samples that are first published after a time of the server."""
        earliest, latest = self._by_sample_clock(server_time)
        return earliest - max(self._late, self._last_late), latest

    def _by_sample_clock(self, server_time: int) -> tuple[int, int]:
        """The earliest and the latest that a time of the server's clock (µs) can be by the clock of sample times.

        Both are usually the same clock. A sample that is older than its message only proves that it can be.
        """
        lead = min((value for value in (self._lead, self._last_lead) if value is not None), key=abs, default=0)
        return server_time + min(lead, 0), server_time + max(lead, 0)

    def _is_from_before(self, publish_time: int) -> bool:
        """Return whether a message is from before the session. Later ones may be, too, because the clock was set."""
        return 0 < publish_time < self._session and monotonic() - self._session_began < self._interval

    def observe(self, clock: str, time: int, arrival: int) -> None:
        """Observe a time (µs) that is slightly before ``arrival`` if clocks agree."""
        offset = (time - arrival) / 1e6
        if abs(offset) < abs(self._smallest[clock]):
            self._smallest[clock] = offset

    def observe_wall_clock(self) -> None:
        """Observe our wall clock. What is known by it is void once it was set."""
        boot = _boot()
        if abs(boot - self._boot) > _STEADY * 1e6:
            self.start_server()
        self._boot = boot

    def note(self) -> str | None:
        """The note by which the next process knows the clocks, if they have changed."""
        offsets = self._offsets()
        if all(abs(offsets[clock] - self._noted.get(clock, np.inf)) <= _NOTED for clock in offsets):
            return None
        self._noted = offsets
        return json.dumps(offsets)

    def _offsets(self) -> dict[str, float]:
        """Lead of each clock over ours (s), as far as it is known."""
        return self._last_offsets | {clock: offset for clock, offset in self._smallest.items() if np.isfinite(offset)}

    def _server_offset_change(self, server_time: int) -> float:
        """Lead of the server's clock over what it was by our steady clock (s); NaN if it is not known."""
        now = (server_time - self._boot - _boot_us()) / 1e6
        return now - self._offsets().get("server", np.nan)

    @property
    def is_known(self) -> bool:
        """Return whether anything is known of the server's clocks."""
        return bool(self._offsets())

    def fell_behind(self, server_time: int) -> bool:
        """Return whether the server's clock (µs, 0: unknown) was set back, as by a restart without a battery."""
        return server_time > 0 and self._server_offset_change(server_time) < -self._limit

    def sample_clock_now(self) -> tuple[int, int]:
        """The earliest and the latest that the current time (µs) can be by the clock of samples, by our steady clock.

        A sample that is a little late has waited; one that is late by more than the limit has another clock.
        """
        now, offsets = self._boot + _boot_us(), self._offsets()
        offset = offsets.get("source", offsets.get("server", 0.0))
        earliest, latest = (min(offset, 0.0), max(offset, 0.0)) if abs(offset) <= self._limit else (offset, offset)
        return now + round(earliest * 1e6) - max(self._late, self._last_late), now + round(latest * 1e6)

    def published_to(self, server_time: int) -> int:
        """The time (µs) up to which samples are published by a message of that time of the server."""
        earliest, latest = self.sample_clock_now()
        by_server = self.sample_times(server_time)[0]
        is_plausible = earliest - _LONGEST_DELAY * 1e6 <= by_server <= latest + _STEADY * 1e6
        return by_server if is_plausible or not self.is_known else earliest

    def first_after(self, server_time: int) -> tuple[int, bool]:
        """The time (µs) of the first sample that can follow a time of the server, and whether that is proven."""
        latest = self.sample_clock_now()[1]
        by_server = self.sample_times(server_time)[1]
        is_steady = abs(self._server_offset_change(server_time)) <= _STEADY
        is_steady &= abs(by_server - latest) <= self._limit * 1e6
        return (by_server, True) if is_steady or not self.is_known else (latest, False)

    def events(self, of_channels: Callable[[float, float], Iterable[Event]]) -> list[Event]:
        """Events for changes, once per interval.

        ``of_channels``: those of single channels, by the limit and the difference of the source's clock (s).
        """
        if monotonic() < self._until:
            return []
        self._until = monotonic() + self._interval
        events = []
        for clock, offset in self._smallest.items():
            if not np.isfinite(offset):
                continue
            self._last_offsets[clock] = offset
            skewed = abs(offset) > self._limit
            if skewed != self._skewed[clock]:
                self._skewed[clock] = skewed
                events.append(clock_skew(skewed, clock, offset, self._limit))
        if np.isfinite(self._smallest["source"]):
            events += of_channels(self._limit, self._smallest["source"])
            self._late, self._last_late = 0, self._late
        self._smallest = dict.fromkeys(self._smallest, np.inf)
        self._lead, self._last_lead = None, self._last_lead if self._lead is None else self._lead
        return events


def _boot() -> int:
    wall, steady = machine_clocks()
    return wall - steady


def _boot_us() -> int:
    return round(boot_seconds() * 1e6)


def clock_skew(skewed: bool, clock: str, offset: float, limit: float, channel: int | None = None) -> Event:
    """The event of a clock that began or stopped to differ."""
    detail = {"clock": clock, "ahead_seconds": round(offset, 3), "limit_seconds": limit}
    return Event("clock_skew", now_us(), channel, text="skewed" if skewed else "good", detail=detail)
