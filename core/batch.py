"""Batches of samples, events, gaps and counts, which move through plantlog.

Times are microseconds since 1970-01-01 00:00 UTC (``int64``), PostgreSQL's own resolution.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from core.samples import Samples, Selection, check_columns

Int32s: TypeAlias = NDArray[np.int32]
Int64s: TypeAlias = NDArray[np.int64]
Float64s: TypeAlias = NDArray[np.float64]
UInt32s: TypeAlias = NDArray[np.uint32]

NO_SOURCE = 0  # source id of batches that belong to no source, such as user actions; NULL in plant.event

ROW_BYTES = 24  # channel 4 + time 8 + value 8 + status 4


@dataclass(frozen=True, slots=True)
class SampleBatch:
    """Samples of one source, n ≥ 1, in order of arrival; the writer sorts."""

    source_id: int
    received_at: int  # µs, this machine's clock
    samples: Samples

    def __len__(self) -> int:
        return len(self.samples)

    def part(self, rows: Selection) -> SampleBatch:
        """The batch with some of its samples."""
        return replace(self, samples=self.samples.part(rows))


@dataclass(frozen=True, slots=True)
class Event:
    """Something that is not a numeric sample: a text value, a state change, an alarm, a restart.

    ``type`` is one of the names in :data:`EVENT_TYPES`. A text value of a channel is an event of type
    ``text`` with the text in ``text`` and the sample's own status.
    """

    type: str
    time: int  # µs
    channel_id: int | None = None
    status: int | None = None
    text: str | None = None
    detail: Mapping[str, Any] = field(default_factory=dict)

    @property
    def condition_key(self) -> str | None:
        """Key of the condition of an OPC UA server whose alarm changed; None: a limit's alarm, or another event.

        Alarms of limits and conditions have one type, as they are in one alarm list. Only this tells them apart.
        """
        return self.detail.get("condition_key")


EVENT_TYPES = (
    "text",  # a value of a text channel
    "source_state",  # a source connected, ...; text: state, detail.reason: why; if only that is new, detail.since (µs)
    "channel_state",  # one channel became unreadable or readable again
    "conflict",  # a second, different value for the same (channel, time) was kept out
    "clock_skew",  # a source's clock and ours differ by more than the limit (text "skewed"), or no longer ("good")
    "clock_set",  # the clock of arrival times was set; text: forward or back, detail: from, to, step
    "poll_stretched",  # polls take longer than their interval (text "stretched"; detail: who is slow), or not ("good")
    "time_source",  # where a channel's times come from (text: source, server, arrival, change), when it is another one
    "version_read",  # first time read with a new version of the channel; detail: version
    "counter_reset",  # a counter is lower than before; text: from what to what, detail: before, value, since (µs)
    "rounded",  # a channel's integers are beyond 2^53: what is stored is the nearest float64; once a process
    "unknown_status",  # a push source sent a status (text) that is not in its status_codes; once a process
    "failover",  # another of a source's servers is in use (text: its address); detail: before, reason
    "restart",  # a process of plantlog started
    "certificate_expiry",  # our or a server's certificate expires within 30 days; detail: which, when
    "alarm",  # an alarm changed its state; text: new state, detail: limit, value, priority, ...
    "server_event",  # an event of an OPC UA server that changed no alarm; text: its message, detail: its other fields
    "events_missing",  # events of an OPC UA server were lost; text: why
    "import",  # samples were imported from a file; detail: file, sha256, samples, first, last, account, outcome, ...
    "user_action",  # what somebody did; text: who and what, detail: user, role, host, action, arguments, outcome, ...
)


ROUNDED_DETAIL = {"reason": 'integers beyond 2^53 are rounded; kind = "text" keeps them exact'}


def is_rounded(integers: NDArray[Any], values: Float64s) -> NDArray[np.bool_]:
    """Mask of ``values`` (n,) that differ from the 64-bit ``integers`` (n,) they were converted from."""
    limit = float(2**64 if integers.dtype.kind == "u" else 2**63)  # what comes back from there differs by machine
    with np.errstate(invalid="ignore"):
        rounded: NDArray[np.bool_] = (values >= limit) | (values.astype(integers.dtype) != integers)
    return rounded


@dataclass(frozen=True, slots=True)
class EventBatch:
    """Events of one source, in order of arrival."""

    source_id: int
    received_at: int  # µs
    events: Sequence[Event]

    def __len__(self) -> int:
        return len(self.events)


STANDBY = "standby"
GAP_REASONS = (
    "stopped",  # plantlog was stopped, and the source does not buffer data
    "killed",  # plantlog or its machine crashed or was killed
    "disconnected",  # the source could not be reached, or was silent
    "subscription_lost",  # the OPC UA server no longer had what it should have kept for us
    "not_available",  # a notification did not come, and the server could not send it again
    "overflow",  # the source's own queue was full, and it threw samples away
    "undecodable",  # something came, and could not be read
    "refused",  # the source rejects the channel: unknown, no access, illegal address
    "poll_failed",  # the device answered with an exception, short, or not in time
    "poll_missed",  # a poll was not made when it was due: the one before took too long
    "clock_set",  # our clock was set: no time is between, or times came twice, and the order of samples is lost
    "spool_full",  # our disk was full or failed
    "spool_corrupt",  # our disk gave back something else than was written
    "database_restored",  # the database lost what it had, and the journal no longer has it
    STANDBY,  # the other member of a redundant pair polls
    "away",  # neither member of a redundant pair ran
    "time_stands_still",  # values differ, but their timestamps repeat: one is stored
    "stale",  # no value of the channel for longer than configured
    "removed",  # the channel was removed from the configuration: its last value ends
)


@dataclass(frozen=True, slots=True)
class Gap:
    """An interval in which samples are known to be missing, or may be: after ``from_time``, before ``to_time``.

    A gap is identified by its channel and ``from_time``. A later record of it (it ended, it was backfilled) replaces
    the earlier one. Times are from this machine's clock where the source has none.
    """

    from_time: int  # µs
    to_time: int | None  # µs; None: still open
    reason: str  # one of GAP_REASONS
    channel_ids: tuple[int, ...] | None = None  # None: every channel of the source
    detail: str = ""  # for people: what exactly happened
    backfilled: bool = False  # all of it was read from the source's history since


@dataclass(frozen=True, slots=True)
class GapBatch:
    """Records of gaps of one source, in order. Created only by ``ingest.gaps``."""

    source_id: int
    received_at: int  # µs; of two records of one gap the later one counts
    gaps: Sequence[Gap]

    def __len__(self) -> int:
        return len(self.gaps)


MAX_INCREMENT = 10**10  # by one increment: sums of as many as memory holds stay within an int64


@dataclass(frozen=True, slots=True, eq=False)
class CountBatch:
    """Increments of one source, as columns of equal length n ≥ 1.

    Unlike a sample, an increment is not idempotent: the table cannot tell that it was added before. So a
    batch is added whole, in the transaction that adds its row to ``plant.ingest_batch``, or not at all.

    Raises ValueError if columns have other types or unequal lengths, or if a number is out of range.
    """

    source_id: int
    received_at: int  # µs, this machine's clock
    types: tuple[str, ...]  # what was counted, each once
    type: Int32s  # (n,) indices in ``types``
    channel_id: Int32s  # (n,) 0: of no channel
    time: Int64s  # (n,) µs
    n: Int64s  # (n,) 0 to MAX_INCREMENT
    digest: int | None = None
    """Its key in ``plant.ingest_batch``: a negative hash of the request, so that a retry has the same key;
    None: the positive sequence number in the spool is the key."""

    def __post_init__(self) -> None:
        check_columns(self, type=np.int32, channel_id=np.int32, time=np.int64, n=np.int64)
        if len(set(self.types)) < len(self.types):
            raise ValueError("duplicate type")
        if len(self) and not 0 <= int(self.type.min()) <= int(self.type.max()) < len(self.types):
            raise ValueError(f"type index out of range: there are {len(self.types)} types")
        if len(self) and not 0 <= int(self.n.min()) <= int(self.n.max()) <= MAX_INCREMENT:
            raise ValueError(f"count out of range: 0 to {MAX_INCREMENT}")
        if self.digest is not None and not -(2**63) <= self.digest < 0:
            raise ValueError(f"the digest {self.digest} is not a negative 64-bit number")

    def __len__(self) -> int:
        return len(self.n)


Batch: TypeAlias = SampleBatch | EventBatch | GapBatch | CountBatch


def sequence_of(content: bytes) -> int:
    """The key of a batch that comes by no spool: a negative number, unlike a spool's. A repetition has the same."""
    return -1 - (int.from_bytes(hashlib.blake2b(content, digest_size=8).digest()) >> 1)
