"""Gaps of one source: opened, closed and merged here and nowhere else, and never forgotten by a restart.

A gap is kept once for all channels that share it, so that what it costs does not grow with them. What is open is kept
as a note in the spool, so that a process that was killed goes on with it. What can't be written now (the disk refuses)
is kept in memory and written with the next thing that is said.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from ingest import metrics
from ingest.appender import Appender, Notes
from ingest.batch import Gap, GapBatch, Int32s, now_us
from ingest.by_channel import ByChannel, from_ranges, groups, to_ranges
from ingest.errors import SpoolError
from ingest.status import SourceStatus

Channels: TypeAlias = Iterable[int] | None  # None: the source as a whole

_WHOLE = -1  # stands for the source as a whole, where channels do
_NOBODY = np.empty(0, np.int32)
_MUCH = 500  # gaps that are open: more are not written down on the event loop


@dataclass(frozen=True, slots=True)
class _Open:
    """An open gap of some channels, or of the whole source."""

    from_time: int  # µs
    reason: str
    detail: str
    certain_to: int | None = None  # µs: it goes on from one that ended then, up to which something is missing for sure

    def said(self) -> tuple[int, str, str, int | None]:
        """As it stands in notes."""
        return self.from_time, self.reason, self.detail, self.certain_to


@dataclass(frozen=True, slots=True)
class _Closed:
    """A gap that is over."""

    gap: _Open
    end: int  # µs


class Gaps:
    """The gaps of one source. ``None`` in the place of channels means the source as a whole."""

    def __init__(self, status: SourceStatus, spool: Appender) -> None:
        self._status = status
        self._spool = spool
        self._note = f"gaps:{status.source_id}"
        self._open: ByChannel[_Open] = ByChannel()
        self._open.put(_read(spool.notes.get(self._note, "[]")))
        self._closed: ByChannel[_Closed] = ByChannel()  # the last one of each channel
        self._note_closed = f"closed-gap:{status.source_id}"  # that of the source as a whole
        if self._note_closed in spool.notes:
            end, *gap = json.loads(spool.notes[self._note_closed])
            self._closed.put([(_Closed(_Open(*gap), end), _ids(None))])
        self._note_again = f"clock-set:{status.source_id}"
        again = json.loads(spool.notes.get(self._note_again, "null"))
        self._again: tuple[int, int] | None = again and (again[0], again[1])  # times from, to come a second time
        self._note_said = f"gaps-said:{status.source_id}"
        self._said_to = int(spool.notes.get(self._note_said, 0))  # µs: what is said next is said later
        self._unsaid: list[Gap] = []
        self._saying = asyncio.Lock()
        self._show()

    def opened(self, channel: int | None = None) -> int | None:
        """Since when (µs) the channel, or the source, has an open gap; None: it has none."""
        gap = self._gap(channel)
        return None if gap is None else gap.from_time

    def open_for(self, reason: str) -> list[int]:
        """The channels whose open gap has this reason."""
        return [c for gap, some in self._open.all() if gap.reason == reason for c in some.tolist() if c != _WHOLE]

    def channels(self) -> list[int]:
        """The channels that have an open gap of their own."""
        return [channel for channel in self._open.channels.tolist() if channel != _WHOLE]

    def detail(self, channel: int | None = None) -> str:
        """Of the open gap; empty where there is none."""
        gap = self._gap(channel)
        return "" if gap is None else gap.detail

    def reason(self, channel: int | None = None) -> str:
        """Of the open gap; empty where there is none."""
        gap = self._gap(channel)
        return "" if gap is None else gap.reason

    def _gap(self, channel: int | None) -> _Open | None:
        return self._open.get(_WHOLE if channel is None else channel)

    async def open(self, from_time: int, reason: str, detail: str = "", channels: Channels = None) -> None:
        """Samples are missing from ``from_time`` on. What is open already stays as it is.

        What reaches back into a gap that was closed goes on from there: no gap takes the place of another.
        """
        await self.open_each([(channels, from_time)], reason, detail)

    async def open_each(self, begins: Iterable[tuple[Channels, int]], reason: str, detail: str = "") -> None:
        """Samples of channels are missing from that time on; no channel stands there twice."""
        fresh: dict[_Open, list[Int32s]] = {}
        for begin, before, channels in self._since([(c, (at,)) for c, at in begins]):
            gap = _Open(begin[0], reason, detail)
            if before is not None and before.end >= gap.from_time:
                same, end = before.gap.reason == reason, before.end
                gap = replace(gap, from_time=before.gap.from_time if same else end, certain_to=end if same else None)
            if len(channels := channels[~self._open.has(channels)]):
                fresh.setdefault(gap, []).append(channels)
        if fresh:
            metrics.gaps.labels(source=self._status.name, reason=reason).inc(len(fresh))
            opened = [(gap, np.concatenate(some)) for gap, some in fresh.items()]
            self._open.put(opened)
            for gap, channels in opened:
                self._will_say(gap, None, channels)
            await self.say()

    async def close(self, to_time: int, channels: Channels = None) -> None:
        """The first sample behind the gap has ``to_time``."""
        await self.close_each([(channels, to_time)])

    async def close_each(self, ends: Iterable[tuple[Channels, int]]) -> None:
        """Of channels, the first sample behind their gap has that time."""
        ended: dict[_Closed, list[Int32s]] = {}
        for of, to_time in ends:
            for gap, channels in self._open.take(_ids(of)):
                end = max(to_time, gap.certain_to or gap.from_time)
                ended.setdefault(_Closed(replace(gap, certain_to=None), end), []).append(channels)
        if ended:
            self._over(ended)
            await self.say()

    async def record(
        self, from_time: int, to_time: int, reason: str, detail: str = "", channels: Channels = None
    ) -> None:
        """A gap that is over already."""
        await self.record_each([(channels, from_time, to_time)], reason, detail)

    async def record_each(self, spans: Iterable[tuple[Channels, int, int]], reason: str, detail: str = "") -> None:
        """Gaps that are over already: (channels, from, to) each."""
        each = [(channels, (start, end)) for channels, start, end in spans]
        named = np.concatenate([_NOBODY, *(_ids(channels) for channels, _ in each)])
        if len(np.unique(named)) == len(named):
            self._ended(each, reason, detail)
        else:  # one after another: each goes on with what the one before became
            for span in each:
                self._ended([span], reason, detail)
        await self.say()

    def _ended(self, spans: Sequence[tuple[Channels, tuple[int, ...]]], reason: str, detail: str) -> None:
        said: dict[_Closed, list[Int32s]] = {}
        for (from_time, to_time), before, channels in self._since(spans):
            gap = _Closed(_Open(from_time, reason, detail), max(to_time, from_time))
            if before is not None and before.gap.reason == reason and before.gap.from_time <= from_time <= before.end:
                gap = _Closed(before.gap, max(gap.end, before.end))
            said.setdefault(gap, []).append(channels)
        metrics.gaps.labels(source=self._status.name, reason=reason).inc(len(said))
        self._over(said)

    async def forget(self, channels: Channels = None) -> None:
        """It turned out that nothing is missing: the gap ends where it began, or where the one before it had ended."""
        for gap, some in self._open.take(_ids(channels)):
            detail = gap.detail if gap.certain_to else "nothing was missing"
            self._will_say(replace(gap, detail=detail), gap.certain_to or gap.from_time, some)
        await self.say()

    def _since(
        self, spans: Sequence[tuple[Channels, tuple[int, ...]]]
    ) -> Iterator[tuple[tuple[int, ...], _Closed | None, Int32s]]:
        """Times, the last gap that ended, and the channels that have both in common."""
        some, each = [_ids(of) for of, _ in spans], [times for _, times in spans]
        places = {times: place for place, times in enumerate(each)}
        channels = np.concatenate([_NOBODY, *some])
        which = np.repeat(np.array([places[times] for times in each], np.int64), [len(ids) for ids in some])
        for before, at in self._closed.of(channels):
            for place, among in groups(which[at]):
                yield each[place], before, channels[at[among]]

    def _over(self, ended: dict[_Closed, list[Int32s]]) -> None:
        closed = [(gap, np.concatenate(some)) for gap, some in ended.items()]
        self._closed.put(closed)
        for over, channels in closed:
            self._will_say(over.gap, over.end, channels)

    def _will_say(self, gap: _Open, end: int | None, channels: Int32s) -> None:
        of = channels[channels != _WHOLE]
        if len(of) < len(channels):
            self._unsaid.append(Gap(gap.from_time, end, gap.reason, None, gap.detail))
        if len(of):
            self._unsaid.append(Gap(gap.from_time, end, gap.reason, tuple(np.sort(of).tolist()), gap.detail))

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
        for gap, channels in self._open.all():
            if gap.from_time < after:
                continue
            fresh = _Open(after + 1, gap.reason, gap.detail)  # not the beginning of the gap of the clock
            self._will_say(gap, max(before, gap.from_time, gap.certain_to or 0), channels)
            self._will_say(fresh, None, channels)
            self._open.put([(fresh, channels)])
        self._closed.keep([over for over, _ in self._closed.all() if over.end < after])

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
        async with self._saying:  # what is said later is written later, with the notes that it left
            if not self._unsaid:
                return
            said, self._unsaid = self._unsaid, []
            at = max(now_us(), self._said_to)  # what is said later is right, also where the clock was set back
            self._said_to = at + len(said)
            still, notes = self._open.all(), self._small_notes()
            try:
                written = _written(still) if len(still) <= _MUCH else await asyncio.to_thread(_written, still)
                await self._spool.append(
                    GapBatch(self._status.source_id, at, tuple(said)), {self._note: written, **notes}
                )
            except BaseException as error:
                self._unsaid = said + self._unsaid
                if not isinstance(error, SpoolError):
                    raise

    def _small_notes(self) -> Notes:
        notes = {
            self._note_said: str(self._said_to),
            self._note_again: None if self._again is None else json.dumps(self._again),
        }
        over = self._closed.get(_WHOLE)
        return notes if over is None else {**notes, self._note_closed: json.dumps((over.end, *over.gap.said()))}

    def _show(self) -> None:
        self._status.open_gaps = len(self._open)
        metrics.open_gaps.labels(source=self._status.name).set(len(self._open))


def _ids(channels: Channels) -> Int32s:
    """Each channel once; what stands for the source as a whole, where there are none."""
    if channels is None:
        return np.array([_WHOLE], np.int32)
    return np.unique(channels if isinstance(channels, np.ndarray) else np.fromiter(channels, np.int32)).astype(np.int32)


def _written(gaps: Iterable[tuple[_Open, Int32s]]) -> str | None:
    """The note of open gaps: (ranges of channels, from, reason, detail, certain to) each; None: there are none."""
    each = [(to_ranges(channels), *gap.said()) for gap, channels in gaps]
    return json.dumps(each) if each else None


def _read(note: str) -> list[tuple[_Open, Int32s]]:
    """What :func:`_written` made, or a version before: there (channel or null, from, ...) stands for each channel."""
    shared: dict[_Open, list[Int32s]] = {}
    for of, *gap in json.loads(note):
        ids = from_ranges(of).astype(np.int32) if isinstance(of, list) else _ids(None if of is None else [of])
        shared.setdefault(_Open(*gap), []).append(ids)
    return [(gap, np.concatenate(some)) for gap, some in shared.items()]
