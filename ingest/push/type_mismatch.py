"""Text values received for numeric channels: reported once, with a gap from the text to the next number."""

from __future__ import annotations

from collections.abc import Callable, Set

from core.batch import Event
from core.timestamps import now_us
from ingest.gaps import Gaps
from ingest.push.mapping import MappedRows
from ingest.status import SourceStatus

_REASON = "undecodable"
_DETAIL = 'text value received for a numeric channel: set kind = "text"'


class TypeMismatches:
    """The affected channels of one source, restored from their gaps. ``name`` maps a channel id to its name."""

    def __init__(self, status: SourceStatus, gaps: Gaps, name: Callable[[int], str]) -> None:
        self._status = status
        self._gaps = gaps
        self._name = name
        self._update_status()

    async def set_number_channels(self, numbers: Set[int]) -> None:
        """Set the numeric channels; close the gaps of all others."""
        at = now_us()
        await self._gaps.close(at, self._bad() - numbers)
        self._update_status()

    async def update(self, found: MappedRows) -> list[Event]:
        """Open and close gaps for rows that are now durable; return the events to store."""
        bad = self._bad()
        if not found.misplaced and not bad:
            return []
        times: dict[int, list[tuple[int, bool]]] = {channel: [] for channel in bad}
        for event in found.misplaced:
            assert event.channel_id is not None
            times.setdefault(event.channel_id, []).append((event.time, True))
        for channel, time in zip(found.channel_id, found.time, strict=True):
            if channel in times and self._gaps.ends_with(time):
                times[channel].append((time, False))
        spans: list[tuple[list[int], int, int]] = []
        for channel, of_channel in times.items():
            since = self._gaps.open_since(channel) if channel in bad else None
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
                await self._gaps.open(begins, _REASON, _DETAIL, [channel])
        if spans:
            await self._gaps.record_each(spans, _REASON, _DETAIL)
        self._update_status()
        return self._changes(bad, self._bad())

    def _bad(self) -> set[int]:
        return set(self._gaps.channels_open_for(_REASON))

    def _changes(self, before: set[int], after: set[int]) -> list[Event]:
        at = now_us()
        events = [Event("channel_state", at, c, text="bad", detail={"reason": _DETAIL}) for c in sorted(after - before)]
        return events + [Event("channel_state", at, c, text="good") for c in sorted(before - after)]

    def _update_status(self) -> None:
        self._status.bad_channels = {self._name(channel): _DETAIL for channel in self._bad()}
