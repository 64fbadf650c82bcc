"""Texts are stored when they change, and never so that the table says another one than the source did."""

from __future__ import annotations

from core.batch import Event
from ingest.gaps import Gaps
from ingest.opcua.decode.decoded import Text
from ingest.opcua.subscription.texts import RepeatedTexts
from ingest.status import SourceStatus
from tests.memory_appender import MemoryAppender

BAD = 0x80050000


def text(time: int, value: str | None, status: int = 0, channel: int = 1) -> Event:
    return Event("text", time, channel, status, value)


class Received:
    """The texts of one source that are stored."""

    def __init__(self) -> None:
        self.gaps = Gaps(SourceStatus(1, "ua", "opcua", "", 1), MemoryAppender())
        self._texts = RepeatedTexts(self.gaps)
        self.stored: list[tuple[int, str | None]] = []

    def add(self, *texts: Event, in_order: bool = True) -> None:
        changed = self._texts.changed(texts, in_order)
        self._texts.stored(changed)
        self.stored += [(event.time, event.text) for event in changed]


def test_only_changes_of_text_or_status_are_stored() -> None:
    received = Received()
    received.add(text(1, "a"), text(1, "a", channel=2))
    received.add(text(2, "a"), text(3, "a"), text(2, "b", channel=2))
    received.add(text(4, None, BAD))
    received.add(text(5, None, BAD))
    received.add(text(7, "a"), text(6, "b"), text(8, "a"))
    assert received.stored == [(1, "a"), (1, "a"), (2, "b"), (4, None), (6, "b"), (7, "a")]


async def test_text_after_a_gap_is_stored_again() -> None:
    received = Received()
    received.add(text(1, "a"))
    await received.gaps.open(2, "disconnected")
    received.add(text(3, "a"))
    received.add(text(4, "a"))
    await received.gaps.record(5, 6, "overflow", channels=[1])
    received.add(text(7, "a"))
    assert received.stored == [(1, "a"), (3, "a"), (7, "a")]


def test_text_before_which_another_may_come_is_stored() -> None:
    """The message with b is requested again, and comes after the next one, which has a again."""
    received = Received()
    received.add(text(1, "a"))
    received.add(text(3, "a"), in_order=False)
    received.add(text(2, "b"), in_order=True)
    received.add(text(4, "a"), in_order=True)
    assert sorted(received.stored)[:3] == [(1, "a"), (2, "b"), (3, "a")]


def test_text_that_is_not_stored_is_not_known() -> None:
    gaps = Gaps(SourceStatus(1, "ua", "opcua", "", 1), MemoryAppender())
    texts = RepeatedTexts(gaps)
    assert texts.changed([text(1, "a")], in_order=True) == texts.changed([text(1, "a")], in_order=True) != []


def test_other_text_with_the_same_source_timestamp_takes_the_server_timestamp() -> None:
    texts = RepeatedTexts(Gaps(SourceStatus(1, "ua", "opcua", "", 1), MemoryAppender()))
    rows = [("a", 7, 10), ("b", 7, 11), ("b", 7, 12), ("a", 7, 13), ("c", 7, 0), ("a", 8, 14)]
    received = [Text(0, value, 0, source, "String", server) for value, source, server in rows]
    texts.date(received[:2])
    texts.date(received[2:])
    assert [text.time for text in received] == [7, 11, 11, 13, 7, 8]
