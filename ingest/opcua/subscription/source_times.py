"""Times of a source, by its clocks and ours: where gaps begin and end, and how an outage's end is proven."""

from __future__ import annotations

from typing import NamedTuple

from core.batch import Int64s
from core.timestamps import now_us
from ingest.appender import Appender
from ingest.gaps import Gaps
from ingest.opcua.subscription.clock_skew import ClockSkew


class _UnprovenEnd(NamedTuple):
    """The end of an outage of the source by our clock."""

    begin: int  # µs
    end: int  # µs
    ahead: int  # µs, of it before our wall clock
    back: int  # µs, by which the clock of the messages was set back (negative); 0: it was not
    reason: str


class SourceTimes:
    """Begins and ends of the gaps of one source."""

    def __init__(self, skew: ClockSkew, spool: Appender, gaps: Gaps, newest: int, skew_limit: float) -> None:
        """``newest``: µs, the last sample on disk; ``skew_limit``: s."""
        self._skew = skew
        self._spool = spool
        self._gaps = gaps
        self._unproven_end: _UnprovenEnd | None = None  # see :meth:`end_outage`
        self._skew_limit = skew_limit
        self.newest = newest  # µs, last sample on disk, except of clocks that are ahead

    def configure(self, skew_limit: float) -> None:
        """Apply another limit (s)."""
        self._skew_limit = skew_limit

    def set_server_clock(self, time: int) -> None:
        """Set the server's current time (µs) if nothing is known of its clocks; 0: unknown."""
        if time and not self._skew.is_known:
            self._skew.observe("server", time, now_us())

    def start_server(self) -> None:
        """Data comes from another server from now on, which has another clock."""
        self._skew.start_server()

    def has_restarted(self, server_time: int) -> bool:
        """Whether the server's clock says so."""
        return self._skew.fell_behind(server_time)

    def begin_of_gap(self, server_time: int) -> int:
        """The time (µs) of the last sample that was published by a time of the server."""
        return self._plausible(self._skew.published_to(server_time))

    def end_of_gap(self, server_time: int) -> int:
        """The time (µs) of the first sample that can follow a time of the server; 0: now, by our clock."""
        latest = self._skew.first_after(server_time)[0] if server_time else self._skew.own_times()[1]
        return self._plausible(latest)

    def end_outage(self, server_time: int, since: int | None, reason: str) -> int:
        """The time (µs) of the first sample after an outage since then with this reason, by a time of the server.

        Where only our clock says so, the next new sample proves it, or that the server's clock was set.
        """
        time, is_proven = self._skew.first_after(server_time)
        end = self._plausible(time)
        back = min(0, server_time - end) if self._skew.fell_behind(server_time) else 0
        self._unproven_end = None
        if since is not None and not is_proven:
            self._unproven_end = _UnprovenEnd(since, end, end - now_us(), back, reason)
        return end

    def _plausible(self, time: int) -> int:
        """A time (µs), or now, by our clock, if a sample of that time would be quarantined."""
        now = now_us()
        oldest, newest = self._spool.limits.bounds(now)
        return time if oldest <= time <= newest else now

    async def prove_end(self, time: Int64s, last: Int64s, publish_time: int, arrival: int) -> tuple[int, int] | None:
        """The first new samples (µs) after an outage prove its end, or that the clock of samples was set meanwhile.

        (from, to) µs of the outage, if it was longer: the rest of it is recorded, and to be flushed.
        """
        unproven = self._unproven_end
        if unproven is None:
            return None
        is_new = (time > last) | ((time < last) & (time >= unproven.end + unproven.back))
        if not is_new.any():
            return None
        first, ahead = int(time[is_new].min()), int(time[is_new].max()) - arrival - unproven.ahead
        limit = round(self._skew_limit * 1e6)
        if unproven.back and unproven.back / 2 < ahead < -limit:
            return None  # it may be from within the outage
        self._unproven_end = None
        if unproven.back and ahead <= unproven.back / 2:
            await self._set_back(unproven)
            self._skew.observe("server", publish_time, arrival)
            self._skew.observe_samples(int(time[is_new].max()), publish_time, arrival)
            return None
        prolonged = min(first, unproven.end + ahead)
        if prolonged - unproven.end <= limit or not self._gaps.ends_with(prolonged):
            return None
        await self._gaps.record(unproven.end, prolonged, unproven.reason, "the server's clock was set forward")
        return unproven.begin, prolonged

    async def _set_back(self, outage: _UnprovenEnd) -> None:
        """The clock of samples was set back within an outage, and what was lost after that has its times.

        Nothing is known of that clock yet, and no sample of it is stored.
        """
        span = outage.begin + outage.back, outage.end + outage.back
        await self._gaps.record(*span, outage.reason, "the server's clock was set back")
        await self._gaps.flush_or_raise()
        self._skew.start_server()
        self.newest = 0
