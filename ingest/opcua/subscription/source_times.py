"""Begins and ends of the gaps of a source, by its clocks and ours, and how an outage's end is proven."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from core.batch import Int64s, UInt32s
from core.timestamps import now_us
from ingest.appender import Appender
from ingest.gaps import Gaps
from ingest.opcua.subscription.clocks import ClockSkew


class _UnprovenEnd(NamedTuple):
    """The end of an outage of the source by our clock."""

    begin: int  # µs
    end: int  # µs
    wall_offset: int  # µs, of it from our wall clock
    server_time: int  # µs, at the end, by the clock of the messages; 0: unknown
    back: int  # µs, by which the clock of the messages was set back (negative); 0: it was not
    reason: str


class SourceTimes:
    """Begins and ends of the gaps of one source."""

    def __init__(self, clocks: ClockSkew, spool: Appender, gaps: Gaps, newest: int, skew_limit: float) -> None:
        """``newest``: µs, the last sample on disk; ``skew_limit``: s."""
        self._clocks = clocks
        self._spool = spool
        self._gaps = gaps
        self._unproven_end: _UnprovenEnd | None = None  # see :meth:`end_outage`
        self._skew_limit = skew_limit
        self.newest = newest  # µs, last sample on disk, except of clocks that are ahead

    def configure(self, skew_limit: float) -> None:
        """Apply another limit (s)."""
        self._skew_limit = skew_limit

    def begin_of_gap(self, server_time: int) -> int:
        """The time (µs) of the last sample that was published by a time of the server."""
        return self._plausible(self._clocks.published_to(server_time))

    def end_of_gap(self, server_time: int) -> int:
        """The time (µs) of the first sample that can follow a time of the server; 0: now, by our clock."""
        latest = self._clocks.first_after(server_time)[0] if server_time else self._clocks.sample_clock_now()[1]
        return self._plausible(latest)

    def end_outage(self, server_time: int, since: int | None, reason: str) -> int:
        """The time (µs) of the first sample after an outage since then with this reason, by a time of the server.

        Where only our clock says so, the next new sample proves it, or that the server's clock was set.
        """
        time, is_proven = self._clocks.first_after(server_time)
        end = self._plausible(time)
        back = min(0, server_time - end) if self._clocks.fell_behind(server_time) else 0
        self._unproven_end = None
        if since is not None and not is_proven:
            self._unproven_end = _UnprovenEnd(since, end, end - now_us(), server_time, back, reason)
        return end

    def _plausible(self, time: int) -> int:
        """A time (µs), or now, by our clock, if a sample of that time would be quarantined."""
        now = now_us()
        oldest, newest = self._spool.limits.bounds(now)
        return time if oldest <= time <= newest else now

    async def prove_end(
        self, position: UInt32s, time: Int64s, last: Int64s, publish_time: int, arrival: int
    ) -> tuple[int, int] | None:
        """The first new samples (µs) after an outage prove its end, or that the clock of samples was set meanwhile.

        ``position``, ``last``: the channel of each, and the time (µs) of its sample before.
        (from, to) µs of the outage, if it was longer: the rest of it is recorded, and to be flushed.
        """
        unproven = self._unproven_end
        if unproven is None:
            return None
        is_new = (time > last) | ((time < last) & (time >= unproven.end + unproven.back))
        if not is_new.any():
            return None
        limit = round(self._skew_limit * 1e6)
        by_our_clock = is_new & (np.abs(time - arrival) <= limit)  # then others have clocks of their own, or are old
        relevant = by_our_clock if by_our_clock.any() else is_new
        shift = int(time[relevant].max()) - unproven.end - self._since_end(unproven, publish_time, arrival)
        if unproven.back and unproven.back / 2 < shift < -limit:
            return None  # it may be from within the outage
        self._unproven_end = None
        if unproven.back and shift <= unproven.back / 2:
            await self._set_back(unproven)
            self._clocks.observe("server", publish_time, arrival)
            self._clocks.observe_samples(int(time[is_new].max()), publish_time, arrival)
            return None
        # A new item begins with the value that the server has then: it is from before the end.
        begins = np.unique(position[relevant], return_index=True)[1]
        prolonged = max(unproven.end + shift, int(time[relevant][begins].max()))
        if shift <= limit or not self._gaps.ends_with(prolonged):
            return None
        await self._gaps.record(unproven.end, prolonged, unproven.reason, "the server's clock was set forward")
        return unproven.begin, prolonged

    def _since_end(self, unproven: _UnprovenEnd, publish_time: int, arrival: int) -> int:
        """The time (µs) from the end of an outage to a message: it may have arrived late."""
        until_arrival = arrival + unproven.wall_offset - unproven.end
        if not (publish_time and unproven.server_time):
            return until_arrival
        return max(0, min(publish_time - unproven.server_time, until_arrival))

    async def _set_back(self, outage: _UnprovenEnd) -> None:
        """The clock of samples was set back within an outage, and what was lost after that has its times.

        Nothing is known of that clock yet, and no sample of it is stored.
        """
        span = outage.begin + outage.back, outage.end + outage.back
        await self._gaps.record(*span, outage.reason, "the server's clock was set back")
        await self._gaps.flush_or_raise()
        self._clocks.start_server()
        self.newest = 0
