"""Channels of numbers that were given a text: said once, with a gap from the text to the next number."""

from __future__ import annotations

from collections.abc import Callable, Set

from ingest.batch import Event, now_us
from ingest.gaps import Gaps
from ingest.push.mapping import Rows
from ingest.status import SourceStatus

_REASON = "undecodable"
_WHAT = 'a text came, which is no number: it needs kind = "text"'


class NoNumber:
    """Those of one source. Their gaps tell a process that starts anew. ``name``: of a channel's id."""

    def __init__(self, status: SourceStatus, gaps: Gaps, name: Callable[[int], str]) -> None:
        self._status = status
        self._gaps = gaps
        self._name = name
        self._show()

    async def only(self, numbers: Set[int]) -> None:
        """Only these channels are of numbers now: gaps of others, which are gone or take texts, end."""
        at = now_us()
        await self._gaps.close(at, self._bad() - numbers)
        self._show()

    async def look(self, found: Rows) -> list[Event]:
        """Open and close gaps with what is on disk now; events to be kept."""
        bad = self._bad()
        if not found.misplaced and not bad:
            return []
        times: dict[int, list[tuple[int, bool]]] = {channel: [] for channel in bad}
        for event in found.misplaced:
            assert event.channel_id is not None
            times.setdefault(event.channel_id, []).append((event.time, True))
        for channel, time in zip(found.channel_id, found.time, strict=True):
            if channel in times:
                times[channel].append((time, False))
        spans: list[tuple[list[int], int, int]] = []
        for channel, of_channel in times.items():
            since = self._gaps.opened(channel) if channel in bad else None
            begins: int | None = None  # of a gap that no other process knows yet
            for time, is_text in sorted(of_channel):
                if is_text and since is None and begins is None:
                    begins = time
                elif not is_text and since is not None and time > since:
                    await self._gaps.close(time, [channel])
                    since = None
                elif not is_text and begins is not None and time > begins:
                    spans.append(([channel], begins, time))
                    begins = None
            if begins is not None:
                await self._gaps.open(begins, _REASON, _WHAT, [channel])
        if spans:
            await self._gaps.record_each(spans, _REASON, _WHAT)
        self._show()
        return self._changes(bad, self._bad())

    def _bad(self) -> set[int]:
        return set(self._gaps.open_for(_REASON))

    def _changes(self, before: set[int], after: set[int]) -> list[Event]:
        at = now_us()
        said = [Event("channel_state", at, c, text="bad", detail={"reason": _WHAT}) for c in sorted(after - before)]
        return said + [Event("channel_state", at, c, text="good") for c in sorted(before - after)]

    def _show(self) -> None:
        self._status.bad_channels = {self._name(channel): _WHAT for channel in self._bad()}
