"""The live state of a source, as shown by ``/health``, ``plantlog status`` and the metrics."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field

from ingest.appender import Appender
from ingest.batch import Event, EventBatch, Int64s
from ingest.errors import SpoolError
from ingest.source_states import SourceState
from ingest.timestamps import now_us

_AHEAD_US = 60_000_000  # so far ahead of ours a source's clock may be


@dataclass(slots=True)
class SourceStatus:
    """The live state of one source. Its collector writes it, everyone else only reads.

    ``degraded``: some channels are in ``bad_channels``.
    """

    source_id: int
    name: str
    kind: str
    address: str
    channels: int
    state: SourceState = "starting"
    reason: str = ""  # why it is not connected, one sentence
    samples: int = 0  # appended to the spool since start
    reconnects: int = 0
    decode_errors: int = 0
    missed: int = 0  # polls or notifications missed
    pace_seconds: float = 0.0  # actual poll interval if the configured one cannot be kept, else 0
    due_at: int = 0  # µs, when the poll was due that is made now, or the next one will be; 0: it is not polled
    last_sample_at: int = 0  # µs, source time of the newest sample
    open_gaps: int = 0  # of the source as a whole and of its channels, each counted
    bad_channels: dict[str, str] = field(default_factory=dict)  # channel name → why it can't be read
    remarks: dict[str, str] = field(default_factory=dict)  # subject → what is not as usual, though samples come

    def record_samples(self, times: Int64s) -> None:
        """Samples with these times (µs) are durable. Future times do not count as newest."""
        latest = now_us() + _AHEAD_US
        past = times[times <= latest]
        if len(past):  # what was newest before our clock was set back is not
            before = self.last_sample_at if self.last_sample_at <= latest else 0
            self.last_sample_at = max(before, int(past.max()))


async def record_restart(status: SourceStatus, spool: Appender, process: str = "") -> None:
    """Record the start of a source's collector; ``process``: name of the process, else by kind."""
    event = Event("restart", now_us(), detail={"process": process or f"collector-{status.kind}"})
    with suppress(SpoolError):
        await spool.append(EventBatch(status.source_id, event.time, (event,)))
