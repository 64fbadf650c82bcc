"""The live state of a source, as shown by ``/health``, ``plantlog status`` and the metrics, and told by its events."""

from __future__ import annotations

import logging
import re
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any

from core import metrics
from core.batch import Event, EventBatch, Int64s
from core.errors import SpoolError
from core.source_states import SourceState
from core.timestamps import now_us
from ingest.appender import Appender

log = logging.getLogger(__name__)

_RATE_SECONDS = 60.0  # of which a rate is the mean: polls may be many seconds apart
_MAX_LEAD_US = 60_000_000  # so far ahead of ours a source's clock may be
_NUMBER = re.compile(r"\d+(\.\d+)?")
_MAX_REASONS = 20  # of one state: texts of a foreign server may differ each time


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
    samples: int = 0  # appended to the spool since start; see count_samples()
    reconnects: int = 0
    decode_errors: int = 0
    missed: int = 0  # polls or notifications missed
    pace_seconds: float = 0.0  # actual poll interval if the configured one cannot be kept, else 0
    due_at: int = 0  # µs, when the poll was due that is made now, or the next one will be; 0: it is not polled
    last_sample_at: int = 0  # µs, source time of the newest sample
    open_gaps: int = 0  # of the source as a whole and of its channels, each counted
    bad_channels: dict[str, str] = field(default_factory=dict)  # channel name → why it can't be read
    remarks: dict[str, str] = field(default_factory=dict)  # subject → what is not as usual, though samples come

    recent: deque[tuple[float, int]] = field(default_factory=deque)  # when (monotonic s), and how many samples
    began: float = field(default_factory=time.monotonic)

    def count_samples(self, n: int) -> None:
        """Count samples that were appended to the spool."""
        metrics.samples.labels(source=self.name).inc(n)
        now = time.monotonic()
        self.samples += n
        if self.recent and now - self.recent[-1][0] < 1.0:
            now, before = self.recent.pop()
            n += before
        self.recent.append((now, n))
        self._forget(now)

    def count_reconnect(self) -> None:
        """Count a connection after the first one."""
        self.reconnects += 1
        metrics.reconnects.labels(source=self.name).inc()

    def count_undecodable(self, n: int = 1) -> None:
        """Count messages or items that could not be decoded."""
        self.decode_errors += n
        metrics.decode_errors.labels(source=self.name).inc(n)

    def count_missed(self, n: int = 1) -> None:
        """Count missed polls, or lost notifications."""
        self.missed += n
        metrics.missed.labels(source=self.name).inc(n)

    def report(self) -> dict[str, Any]:
        """Report for ``/health``."""
        now = time.monotonic()
        self._forget(now)
        elapsed = min(_RATE_SECONDS, max(1.0, now - self.began))
        content = asdict(self) | {"samples_per_second": sum(n for _, n in self.recent) / elapsed}
        return {name: value for name, value in content.items() if name not in ("recent", "began")}

    def _forget(self, now: float) -> None:
        while self.recent and now - self.recent[0][0] > _RATE_SECONDS:
            self.recent.popleft()

    def remark(self, subject: str, text: str) -> None:
        """Remark what is not as usual; an empty ``text`` removes the remark."""
        if text:
            self.remarks[subject] = text
        else:
            self.remarks.pop(subject, None)

    def remark_repeated(self, channels: int) -> None:
        """Remark how many channels lose values because their timestamps repeat."""
        noun = f"{channels:,} channel{'s' if channels > 1 else ''}"
        self.remark("repeated", f"values of {noun} are lost because their timestamps repeat" if channels else "")

    def record_samples(self, times: Int64s) -> None:
        """Samples with these times (µs) are durable. Future times do not count as newest."""
        latest = now_us() + _MAX_LEAD_US
        past = times[times <= latest]
        if len(past):  # what was newest before our clock was set back is not
            before = self.last_sample_at if self.last_sample_at <= latest else 0
            self.last_sample_at = max(before, int(past.max()))


class RecordedState:
    """The last state of a source that became an event, since when it lasts, and the reasons that are on record for it.

    Reasons may alternate with each attempt to connect, or differ in a number: each is recorded once.
    """

    def __init__(self, status: SourceStatus) -> None:
        self._status = status
        self.forget()

    def forget(self) -> None:
        """Record the next state, whatever it is."""
        self._state: SourceState = "starting"
        self._since = 0  # µs
        self._reasons: set[str] = set()

    def change(self, state: SourceState, reason: str, now: Callable[[], int]) -> list[Event]:
        """Show a state. The event at ``now`` (µs) if it has changed, or has another reason; none: it is on record."""
        self._status.state, self._status.reason = state, reason
        key = _NUMBER.sub("", reason)
        detail: dict[str, Any] = {"reason": reason}
        if state != self._state:
            at = self._since = now()
            self._state, self._reasons = state, {key}
        elif key in self._reasons or len(self._reasons) >= _MAX_REASONS:
            return []
        else:
            at = now()
            self._reasons.add(key)
            detail["since"] = self._since
        log.info("source %s: %s%s", self._status.name, state, f": {reason}" if reason else "")
        return [Event("source_state", at, text=state, detail=detail)]


async def record_restart(status: SourceStatus, spool: Appender, process: str = "") -> None:
    """Record the start of a source's collector; ``process``: name of the process, else by kind."""
    event = Event("restart", now_us(), detail={"process": process or f"collector-{status.kind}"})
    with suppress(SpoolError):
        await spool.append(EventBatch(status.source_id, event.time, (event,)))
