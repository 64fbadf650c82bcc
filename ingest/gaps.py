"""Gaps of one source: opened, closed and merged here and nowhere else, and never forgotten by a restart.

What is open is kept as a note in the spool, so that a process that was killed goes on with it. What can't be written
now (the disk refuses) is kept in memory and written with the next thing that is said.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import astuple, dataclass, replace

from ingest import metrics
from ingest.appender import Appender, Notes
from ingest.batch import Gap, GapBatch, now_us
from ingest.errors import SpoolError
from ingest.status import SourceStatus


@dataclass(frozen=True, slots=True)
class _Open:
    """An open gap of one channel, or of the whole source."""

    from_time: int  # µs
    reason: str
    detail: str
    certain_to: int | None = None  # µs: it goes on from one that ended then, up to which something is missing for sure


class Gaps:
    """The gaps of one source. ``None`` among channels means the source as a whole."""

    def __init__(self, status: SourceStatus, spool: Appender) -> None:
        self._status = status
        self._spool = spool
        self._note = f"gaps:{status.source_id}"
        self._open: dict[int | None, _Open] = {
            channel: _Open(*gap) for channel, *gap in json.loads(spool.notes.get(self._note, "[]"))
        }
        self._closed: dict[int | None, tuple[_Open, int]] = {}  # the last one of each channel, and its end
        self._note_closed = f"closed-gap:{status.source_id}"  # that of the source as a whole
        if self._note_closed in spool.notes:
            end, *gap = json.loads(spool.notes[self._note_closed])
            self._closed[None] = (_Open(*gap), end)
        self._note_again = f"clock-set:{status.source_id}"
        again = json.loads(spool.notes.get(self._note_again, "null"))
        self._again: tuple[int, int] | None = again and (again[0], again[1])  # times from, to come a second time
        self._note_said = f"gaps-said:{status.source_id}"
        self._said_to = int(spool.notes.get(self._note_said, 0))  # µs: what is said next is said later
        self._unsaid: list[Gap] = []
        self._show()

    def opened(self, channel: int | None = None) -> int | None:
        """Since when (µs) the channel, or the source, has an open gap; None: it has none."""
        gap = self._open.get(channel)
        return None if gap is None else gap.from_time

    def open_for(self, reason: str) -> list[int]:
        """The channels whose open gap has this reason."""
        return [channel for channel, gap in self._open.items() if channel is not None and gap.reason == reason]

    def channels(self) -> list[int]:
        """The channels that have an open gap of their own."""
        return [channel for channel in self._open if channel is not None]

    def detail(self, channel: int | None = None) -> str:
        """Of the open gap; empty where there is none."""
        gap = self._open.get(channel)
        return "" if gap is None else gap.detail

    def reason(self, channel: int | None = None) -> str:
        """Of the open gap; empty where there is none."""
        gap = self._open.get(channel)
        return "" if gap is None else gap.reason

    async def open(self, from_time: int, reason: str, detail: str = "", channels: Iterable[int] | None = None) -> None:
        """Samples are missing from ``from_time`` on. What is open already stays as it is.

        What reaches back into a gap that was closed goes on from there: no gap takes the place of another.
        """
        await self.open_each([(channel, from_time) for channel in _each(channels)], reason, detail)

    async def open_each(self, begins: Iterable[tuple[int | None, int]], reason: str, detail: str = "") -> None:
        """Samples of each channel are missing from that time on."""
        fresh: dict[_Open, list[int | None]] = {}
        for channel, from_time in begins:
            if channel in self._open:
                continue
            gap = _Open(from_time, reason, detail)
            before = self._closed.get(channel)
            if before is not None and before[1] >= from_time:
                last, end = before
                same = last.reason == reason
                gap = replace(gap, from_time=last.from_time, certain_to=end) if same else replace(gap, from_time=end)
            self._open[channel] = gap
            fresh.setdefault(gap, []).append(channel)
        if fresh:
            metrics.gaps.labels(source=self._status.name, reason=reason).inc(len(fresh))
            self._unsaid += [Gap(g.from_time, None, g.reason, _ids(c), g.detail) for g, c in fresh.items()]
            await self.say()

    async def close(self, to_time: int, channels: Iterable[int] | None = None) -> None:
        """The first sample behind the gap has ``to_time``."""
        await self.close_each([(channel, to_time) for channel in _each(channels)])

    async def close_each(self, ends: Iterable[tuple[int | None, int]]) -> None:
        """Of each channel, the first sample behind its gap has that time."""
        ended: dict[tuple[_Open, int], list[int | None]] = {}
        for channel, to_time in ends:
            gap = self._open.pop(channel, None)
            if gap is None:
                continue
            end = max(to_time, gap.certain_to or gap.from_time)
            gap = replace(gap, certain_to=None)
            self._closed[channel] = (gap, end)
            ended.setdefault((gap, end), []).append(channel)
        if ended:
            self._unsaid += [Gap(g.from_time, end, g.reason, _ids(c), g.detail) for (g, end), c in ended.items()]
            await self.say()

    async def record(
        self, from_time: int, to_time: int, reason: str, detail: str = "", channels: Iterable[int] | None = None
    ) -> None:
        """A gap that is over already."""
        await self.record_each([(channel, from_time, to_time) for channel in _each(channels)], reason, detail)

    async def record_each(self, spans: Iterable[tuple[int | None, int, int]], reason: str, detail: str = "") -> None:
        """Gaps that are over already: (channel, from, to) each."""
        said: dict[tuple[_Open, int], list[int | None]] = {}
        for channel, from_time, to_time in spans:
            gap, end = _Open(from_time, reason, detail), max(to_time, from_time)
            before = self._closed.get(channel)
            if before is not None and before[0].reason == reason and before[0].from_time <= from_time <= before[1]:
                gap, end = before[0], max(end, before[1])
            self._closed[channel] = (gap, end)
            said.setdefault((gap, end), []).append(channel)
        metrics.gaps.labels(source=self._status.name, reason=reason).inc(len(said))
        self._unsaid += [Gap(g.from_time, end, g.reason, _ids(c), g.detail) for (g, end), c in said.items()]
        await self.say()

    async def forget(self, channels: Iterable[int] | None = None) -> None:
        """It turned out that nothing is missing: the gap ends where it began, or where the one before it had ended."""
        for channel in _each(channels):
            gap = self._open.pop(channel, None)
            if gap is None:
                continue
            end, detail = gap.certain_to or gap.from_time, gap.detail if gap.certain_to else "nothing was missing"
            self._unsaid.append(Gap(gap.from_time, end, gap.reason, _ids([channel]), detail))
        await self.say()

    async def clock_set(self, before: int, after: int, polled: bool = True) -> None:
        """Our clock, of which the source's times are, was set from ``before`` to ``after`` (µs).

        Set back, times come a second time, up to the latest that was reached. Set forward there are none between, which
        is a gap of a source that is ``polled``.
        """
        reached, by = before, abs(after - before) / 1e6
        if self._again is not None and before < self._again[1]:  # it had not caught up
            since, reached = self._again
            self._unsaid.append(Gap(since, before, "clock_set", None, "times of two runs of our clock"))
        self._again = (after, reached) if after < reached else None
        if after < before:
            self._split(before, after)
        if after < reached:
            detail = f"our clock was set {'back' if after < before else 'forward'} by {by:g} s: times of two runs of it"
            self._unsaid.append(Gap(after, reached, "clock_set", None, detail))
        elif polled:
            self._unsaid.append(Gap(reached, after, "clock_set", None, f"our clock was set forward by {by:g} s"))
        metrics.gaps.labels(source=self._status.name, reason="clock_set").inc()
        await self.say()

    def _split(self, before: int, after: int) -> None:
        """What is open from a time on that is yet to come again ends with the old times, and goes on with the new."""
        ended: dict[_Open, list[int | None]] = {}
        for channel, gap in self._open.items():
            if gap.from_time >= after:
                ended.setdefault(gap, []).append(channel)
        for gap, channels in ended.items():
            end = max(before, gap.from_time, gap.certain_to or 0)
            fresh = _Open(after + 1, gap.reason, gap.detail)  # not the beginning of the gap of the clock
            self._unsaid.append(Gap(gap.from_time, end, gap.reason, _ids(channels), gap.detail))
            self._unsaid.append(Gap(fresh.from_time, None, gap.reason, _ids(channels), gap.detail))
            self._open.update(dict.fromkeys(channels, fresh))
        self._closed = {channel: (gap, end) for channel, (gap, end) in self._closed.items() if end < after}

    async def backfilled(self, gap: Gap) -> None:
        """All that the source's history has of ``gap`` was read."""
        self._unsaid.append(replace(gap, backfilled=True))
        await self.say()

    async def must_say(self) -> None:
        """Make durable what was not yet, before something is that relies on it. Raises SpoolError where that fails."""
        await self.say()
        if self._unsaid:
            raise SpoolError(f"gaps of source {self._status.name} can't be put on record now")

    async def say(self) -> None:
        """Make durable what was not yet. Where the disk refuses it is kept, for the next time."""
        self._show()
        if not self._unsaid:
            return
        said, self._unsaid = self._unsaid, []
        still = [(channel, *astuple(gap)) for channel, gap in self._open.items()]
        at = max(now_us(), self._said_to)  # what is said later is right, also where the clock was set back
        self._said_to = at + len(said)
        notes: Notes = {
            self._note: json.dumps(still) if still else None,
            self._note_said: str(self._said_to),
            self._note_again: None if self._again is None else json.dumps(self._again),
        }
        if None in self._closed:
            gap, end = self._closed[None]
            notes = {**notes, self._note_closed: json.dumps((end, *astuple(gap)))}
        try:
            await self._spool.append(GapBatch(self._status.source_id, at, tuple(said)), notes)
        except SpoolError:
            self._unsaid = said + self._unsaid

    def _show(self) -> None:
        self._status.open_gaps = len(self._open)
        metrics.open_gaps.labels(source=self._status.name).set(len(self._open))


def _each(channels: Iterable[int] | None) -> Iterable[int | None]:
    return (None,) if channels is None else channels


def _ids(channels: list[int | None]) -> tuple[int, ...] | None:
    """The channels of one gap; the whole source where None is among them."""
    return None if None in channels else tuple(c for c in channels if c is not None)
