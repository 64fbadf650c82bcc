"""Texts among numbers, and those that are the same as before: all members of a structure come with any of them."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from core.batch import Event, Float64s, Int64s, SampleBatch, UInt32s
from core.samples import Samples
from ingest.gaps import Gaps
from ingest.opcua.decode.decoded import Text
from ingest.opcua.subscription.tags import Tags


class RepeatedTexts:
    """The last text on disk of each channel. Behind a gap of the source, each channel's next text is stored again."""

    def __init__(self, gaps: Gaps) -> None:
        self._gaps = gaps
        self._opened = gaps.opened
        self._last: dict[int, Event] = {}  # by channel id
        self._dated: dict[int, tuple[int, str, int, int]] = {}  # position → source timestamp, text, status, time
        self.repeat = False  # texts have repeated source timestamps

    def date(self, texts: Iterable[Text]) -> None:
        """Date another text that repeats the source timestamp by the server timestamp, if that is later (µs)."""
        for text in texts:
            source, before, status, time = self._dated.get(text.handle, (0, "", 0, 0))
            if (source, before, status) == (text.time, text.text, text.status):
                text.time = time
                continue
            source, repeats = text.time, source == text.time
            if repeats:
                self.repeat = True
                text.time = max(text.time, text.server)
            self._dated[text.handle] = source, text.text, text.status, text.time

    def changed(self, texts: Iterable[Event], in_order: bool, latest: dict[int, Event] | None = None) -> list[Event]:
        """The texts to store, of one part of a notification, in order of time.

        ``in_order``: all that was sent before is on disk. Else a text that comes later could have been in between.
        ``latest``: the texts to store of the parts before, by channel id, to which these are added.
        """
        latest = {} if latest is None else latest
        if self._opened != self._gaps.opened:
            self._opened = self._gaps.opened
            self._last.clear()
            latest.clear()
        ordered = sorted(texts, key=lambda event: event.time)
        if not in_order:
            return ordered
        to_store: list[Event] = []
        for event in ordered:
            channel = event.channel_id or 0
            last = latest.get(channel) or self._last.get(channel)
            if last is None or (last.text, last.status) != (event.text, event.status) or event.time < last.time:
                to_store.append(event)
                latest[channel] = event
        return to_store

    def stored(self, texts: Iterable[Event]) -> None:
        """Remember texts that are on disk."""
        for event in texts:
            channel = event.channel_id or 0
            last = self._last.get(channel)
            if last is None or event.time >= last.time:
                self._last[channel] = event
            else:  # late, or the source's clock was set back
                del self._last[channel]


def merge_texts(
    position: UInt32s, time: Int64s, status: UInt32s, texts: list[Text], n: int
) -> tuple[UInt32s, Int64s, UInt32s]:
    """Numbers and texts (of ``n`` channels) in order of time: a text channel has both if some values are Bad."""
    ours = [t for t in texts if t.handle < n]
    if not ours:
        return position, time, status
    time = np.concatenate([time, np.array([t.time for t in ours], np.int64)])
    order = np.argsort(time, kind="stable")
    position = np.concatenate([position, np.array([t.handle for t in ours], np.uint32)])
    status = np.concatenate([status, np.array([t.status for t in ours], np.uint32)])
    return position[order], time[order], status[order]


def split_texts(
    source_id: int,
    tags: Tags,
    handle: UInt32s,
    time: Int64s,
    value: Float64s,
    status: UInt32s,
    texts: Iterable[Text],
    arrival: int,
) -> tuple[SampleBatch | None, list[Event]]:
    """Numbers are samples, texts are events; so is a Bad value of a text channel."""
    is_text = tags.is_text[handle]
    ours = [t for t in texts if t.handle < len(tags)]
    events = [Event("text", t.time, int(tags.ids[t.handle]), t.status, t.text) for t in ours]
    if is_text.any():
        events += [
            Event("text", int(time[k]), int(tags.ids[handle[k]]), int(status[k])) for k in np.flatnonzero(is_text)
        ]
        handle, time, value, status = handle[~is_text], time[~is_text], value[~is_text], status[~is_text]
    if not len(handle):
        return None, events
    return SampleBatch(source_id, arrival, Samples(tags.ids[handle], time, value, status)), events
