"""Every value that a server discarded lies within a gap: whatever it flags, discards, and sends in one message."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.config.sources import OpcuaSource, OpcuaTag
from ingest.gaps import Gaps
from ingest.opcua.subscription.overflow import NotificationSamples, Overflows, Queue, overflows
from ingest.opcua.subscription.subscription_state import Subscription
from ingest.opcua.subscription.tags import Tags
from ingest.status import SourceStatus
from tests.batches import gaps_of
from tests.memory_appender import MemoryAppender

OVERFLOW = 0x0480
STEP = 1000  # µs between two values
NONE = np.zeros(1, np.int64)

Flags = Literal["first", "last", "queued while full", "next"]


@dataclass
class Served:
    """A server's queue of one monitored item. Values are numbers, their times STEP apart."""

    size: int
    oldest: bool
    flags: Flags
    held: list[list[int]] = field(default_factory=list)  # [value, flag]
    discarded: list[int] = field(default_factory=list)
    owed: bool = False  # a flag for whatever is next

    def put(self, value: int) -> None:
        entry = [value, int(self.owed)]
        self.owed = False
        if len(self.held) < self.size:
            self.held.append(entry)
            return
        if self.oldest:
            self.discarded.append(self.held.pop(0)[0])
            self.held.append(entry)
        else:
            self.discarded.append(self.held[-1][0])
            entry[1] |= self.held[-1][1]
            self.held[-1] = entry
        if self.flags == "queued while full":
            self.held[-1][1] = 1
        elif self.flags == "first" or (self.flags == "next" and self.oldest):
            self.held[0][1] = 1
        else:
            for other in self.held:
                other[1] = 0
            self.held[-1][1] = 1


@dataclass
class Dropping(Served):
    """One that throws the new value away, against the specification, and flags the one that is queued next."""

    def put(self, value: int) -> None:
        if len(self.held) < self.size:
            super().put(value)
            return
        self.discarded.append(value)
        if self.flags == "next":
            self.owed = True
        else:
            places = {"first": [0], "last": [-1], "queued while full": [-1]}[self.flags]
            for place in places:
                self.held[place][1] = 1


class Client:
    """Takes messages as the collector does."""

    def __init__(self, size: int, oldest: bool) -> None:
        self.queue = Queue(size, oldest)
        self.last = np.zeros(1, np.int64)
        self.before: np.ndarray | None = None
        self.complete_to = STEP // 2
        self.gaps: list[tuple[int, int]] = []
        self.got: list[int] = []

    def take(self, entries: list[list[int]], arrival: int, more: bool) -> None:
        if entries:
            time = np.array([value * STEP for value, _ in entries], np.int64)
            status = np.array([OVERFLOW * flag for _, flag in entries], np.uint32)
            message = NotificationSamples(np.zeros(len(entries), np.uint32), time, status, arrival, more)
            found = overflows(message, self.last, self.before, self.complete_to, lambda _: self.queue)
            self.gaps += [(start, end) for _, start, end in found]
            if more and self.before is None:
                self.before = self.last.copy()
            self.last[0] = time[-1]
            self.got += [value for value, _ in entries]
        if not more:
            self.before = None
            self.complete_to = arrival

    def restart(self) -> None:
        """The process was killed: what it had in memory is gone."""
        self.last = np.zeros(1, np.int64)
        self.before = None


def inside(value: int, gaps: list[tuple[int, int]]) -> bool:
    return any(start < value * STEP < end for start, end in gaps)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(1, 12)),
        st.tuples(st.just("publish"), st.integers(1, 8)),  # at most as many values in a message
        st.tuples(st.just("restart"), st.just(0)),
    ),
    max_size=25,
)


@given(
    st.sampled_from([Served, Dropping]),
    st.integers(2, 6),
    st.booleans(),
    st.sampled_from(["first", "last", "queued while full", "next"]),
    STEPS,
)
def test_discarded_values_are_within_a_gap(
    kind: type[Served], size: int, oldest: bool, flags: Flags, steps: list[tuple[str, int]]
) -> None:
    if kind is Dropping:
        oldest = False
    queue, client, value = kind(size, oldest, flags), Client(size, oldest), 0
    for step, count in [*steps, ("put", 1), ("publish", 100), ("put", 1), ("publish", 100)]:
        if step == "put":
            for _ in range(count):
                value += 1
                queue.put(value)
        elif step == "publish":
            sent, queue.held = queue.held[:count], queue.held[count:]
            client.take(sent, value * STEP + STEP // 2, bool(queue.held))
        elif kind is Served:
            client.restart()
    assert sorted(client.got + queue.discarded) == list(range(1, value + 1))
    for discarded in queue.discarded:
        assert inside(discarded, client.gaps), (discarded, client.gaps)
    if not queue.discarded:
        assert client.gaps == []


@given(
    st.integers(2, 6),
    st.sampled_from(["first", "last", "queued while full", "next"]),
    st.lists(st.tuples(st.integers(1, 15), st.integers(1, 4)), min_size=1, max_size=10),
)
def test_a_server_may_empty_its_queues_into_messages_that_nobody_fetches(
    size: int, flags: Flags, rounds: list[tuple[int, int]]
) -> None:
    """Several queues, one after another, in one message, which is split anywhere (node-opcua does so)."""
    queue, client, value = Served(size, True, flags), Client(size, True), 0
    pending: list[list[int]] = []
    for count, most in rounds:
        for _ in range(count):
            value += 1
            queue.put(value)
        pending, queue.held = pending + queue.held, []
        if most < 4:
            sent, pending = pending[: most * 4], pending[most * 4 :]
            client.take(sent, value * STEP + STEP // 2, bool(pending))
    client.take(pending, value * STEP + STEP // 2, False)
    for discarded in queue.discarded:
        assert inside(discarded, client.gaps), (discarded, client.gaps)


@pytest.mark.parametrize("flags", ["first", "last", "queued while full", "next"])
def test_overflow_gap_of_a_complete_queue_lies_between_two_samples(flags: Flags) -> None:
    queue, client = Served(100, True, flags), Client(100, True)
    for value in range(1, 300):
        queue.put(value)
        if value in (10, 299):
            client.take(queue.held, value * STEP, False)
            queue.held = []
    assert client.gaps == [(10 * STEP, 200 * STEP)]


def test_discard_newest_has_its_gap_before_the_last_value() -> None:
    queue, client = Served(5, False, "last"), Client(5, False)
    for value in range(1, 20):
        queue.put(value)
        if value in (1, 19):
            client.take(queue.held, value * STEP + 7, False)
            queue.held = []
    assert client.gaps == [(5 * STEP, 19 * STEP + 7)]


UNCERTAIN, BAD = 0x4094_0000, 0x8000_0000


def full(statuses: list[int], size: int, oldest: bool) -> list[tuple[int, int, int]]:
    """Holes where these values came in one message, the first at 10 STEP, after a sample at STEP."""
    time = np.arange(10, 10 + len(statuses), dtype=np.int64) * STEP
    message = NotificationSamples(
        np.zeros(len(time), np.uint32), time, np.array(statuses, np.uint32), 100 * STEP, False
    )
    return list(overflows(message, np.array([STEP], np.int64), None, 0, lambda _: Queue(size, oldest)))


@pytest.mark.parametrize("status", [UNCERTAIN, BAD])
def test_full_queue_with_unflaggable_bad_value_counts_as_overflow(status: int) -> None:
    assert full([status, 0, 0], 3, oldest=True) == [(0, STEP, 10 * STEP)]
    assert full([0, 0, status], 3, oldest=False) == [(0, 11 * STEP, 100 * STEP)]
    assert full([OVERFLOW, 0, 0, status, 0, 0], 3, oldest=True) == [(0, STEP, 13 * STEP)], "two queues"


@pytest.mark.parametrize(
    ("statuses", "size"),
    [
        ([UNCERTAIN, 0], 3),  # not full
        ([0, UNCERTAIN, 0], 3),  # would have been flagged
        ([UNCERTAIN], 1),  # a queue of one value, which never tells
        ([UNCERTAIN, 0], 0),  # not known
    ],
)
@pytest.mark.parametrize("oldest", [True, False])
def test_bad_value_alone_is_no_overflow(statuses: list[int], size: int, oldest: bool) -> None:
    assert full(statuses, size, oldest) == []


def test_overflow_with_a_slow_clock_after_a_restart() -> None:
    """The source is 40 s behind; all that is known is until when nothing was missing, by our clock."""
    time = np.array([1000, 2000, 3000, 4000], np.int64) * STEP
    arrival = 4000 * STEP + 40_000_000
    status = np.array([OVERFLOW, 0, 0, 0], np.uint32)
    message = NotificationSamples(np.zeros(4, np.uint32), time, status, arrival, False)
    (gap,) = overflows(message, NONE, None, 500 * STEP + 40_000_000, lambda _: Queue(4, True))
    assert gap == (0, 500 * STEP, 1000 * STEP)


def test_clock_set_back_makes_no_empty_gap() -> None:
    time = np.array([5, 6, 7], np.int64) * STEP
    message = NotificationSamples(
        np.zeros(3, np.uint32), time, np.array([0, OVERFLOW, 0], np.uint32), 100 * STEP, False
    )
    last = np.array([90 * STEP], np.int64)
    ((_, start, end),) = overflows(message, last, None, 91 * STEP, lambda _: Queue(3, True))
    assert start < end == 5 * STEP


async def test_overflow_is_a_gap_and_remarked_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    status, disk = SourceStatus(1, "ua", "opcua", "", 2, remarks={"queue": "another remark"}), MemoryAppender()
    recent, remarks = Overflows(status, Gaps(status, disk)), status.remarks
    listed = tuple(OpcuaTag(name=name, address=f"ns=2;s={name}") for name in "ab")
    source = OpcuaSource(name="ua", kind="opcua", address="opc.tcp://h:4840", tags=listed)
    tags, subscription = Tags(source, {"a": 1, "b": 2}), Subscription(1, 1.0, 1.0, 10.0)
    for place in ([0, 1], [1]):
        n = len(place)
        flagged = np.full(n, 10 * STEP, np.int64), np.full(n, OVERFLOW, np.uint32)
        message = NotificationSamples(np.array(place, np.uint32), *flagged, 10 * STEP, more=False)
        await recent.record(message, tags, np.full(2, STEP, np.int64), subscription)
    assert {(gap.channel_ids, gap.reason, gap.from_time, gap.to_time) for gap in gaps_of(disk.batches)} == {
        ((1, 2), "overflow", STEP, 10 * STEP),
        ((2,), "overflow", STEP, 10 * STEP),
    }
    assert "values of 2 channels were lost in the last 10 minutes" in remarks["overflow"]
    monkeypatch.setattr("ingest.opcua.subscription.overflow._RECENT_SECONDS", -1.0)
    recent.refresh_remark()
    assert list(remarks) == ["queue"]
