"""CPU of alarm evaluation relative to ingest of the same samples, in one run and one process.

Ingest is what this process does of it: decoding OPC UA notifications, the spool, the writer. What a collector does
besides (its session, encryption, acknowledgements) and the database's own CPU are left out, so the share is the most
that it can be.
"""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from types import MappingProxyType

import numpy as np

from core.batch import Batch, SampleBatch
from core.config.model import WriterOptions
from core.config.sources import PushSource, PushTag
from core.errors import OperationError
from core.time_limits import NO_LIMITS
from ingest.alarms.evaluator import AlarmEvaluator
from ingest.appender import Notes
from ingest.opcua.decode.binary import UNIX_EPOCH_TICKS
from ingest.opcua.decode.data_change import data_change
from ingest.spool.append import Spool
from ingest.writer.writer import Writer
from lab.bench.copy_speed import BenchDatabase
from lab.bench.workload import Workload

_ITEM = np.dtype(
    [("handle", "<u4"), ("mask", "u1"), ("kind", "u1"), ("value", "<f8"), ("source", "<i8")]
)  # a data value with value and source timestamp, of Double
_VALUE_AND_SOURCE, _DOUBLE = 0x05, 11
_SPOOL_BYTES = 8 * 1024**3


@dataclass(frozen=True, slots=True)
class AlarmOverhead:
    """One way in which samples come. CPU in µs a sample, medians of the repeats; the stage's by what happens."""

    batch: int  # samples
    decode: float
    spool: float
    writer: float
    evaluator: Mapping[str, float]  # "quiet": no alarm changes; "1 in 100,000", "1 in 1,000": samples above a limit
    changes: Mapping[str, int]  # how many alarms changed, in one pass

    @property
    def ingest(self) -> float:
        """All that is not the stage's."""
        return self.decode + self.spool + self.writer


async def measure(
    bench: BenchDatabase, load: Workload, sizes: Sequence[int], repeats: int, progress: Callable[[str], None]
) -> list[AlarmOverhead]:
    """One share for each of ``sizes``. Raises OperationError where a quiet plant has alarms."""
    source, ids = _source(load)
    shares = []
    passes = count()
    for size in sizes:
        parts: dict[str, list[float]] = {}
        changes: dict[str, int] = {}
        for repeat in range(repeats):
            batches = _batches(load, size, next(passes))
            bodies = [_body(batch, load) for batch in batches]
            for name, seconds in (await _ingest(bench, load, batches, bodies, f"{size}-{repeat}")).items():
                parts.setdefault(name, []).append(seconds)
            for name, every in (("quiet", 0), ("1 in 100,000", 100_000), ("1 in 1,000", 1000)):
                seconds, changes[name] = await _evaluate(source, ids, _with_alarms(batches, every))
                parts.setdefault(name, []).append(seconds)
            if changes["quiet"]:
                raise OperationError(f"{changes['quiet']} alarms changed where none should")
        per_sample = {name: statistics.median(of) / load.rows * 1e6 for name, of in parts.items()}
        evaluator = {name: per_sample[name] for name in changes}
        shares.append(
            AlarmOverhead(
                size, per_sample["decode"], per_sample["spool"], per_sample["writer"], evaluator, dict(changes)
            )
        )
        progress(f"batches of {size:,}: {shares[-1].ingest:.2f} µs a sample, alarms {evaluator['quiet']:.4f} µs")
    return shares


def _source(load: Workload) -> tuple[PushSource, dict[str, int]]:
    """Every channel has all four levels, rate, quality and silence as limits, with a deadband."""
    tags = tuple(
        PushTag(
            name=f"bench/c{number}",
            address=f"bench/c{number}",
            alarm_lolo=-20.0,
            alarm_lo=-10.0,
            alarm_hi=110.0,
            alarm_hihi=120.0,
            alarm_deadband=1.0,
            alarm_rate=1e6,
            alarm_bad=True,
            alarm_stale=3600.0,
        )
        for number in load.channel_id.tolist()
    )
    source = PushSource.model_construct(name="bench", kind="push", tags=tags)
    return source, {tag.name: number for tag, number in zip(tags, load.channel_id.tolist(), strict=True)}


def _batches(load: Workload, size: int, number: int) -> list[SampleBatch]:
    """The load's seconds, each in parts of at most ``size``; each pass behind the one before, within the day."""
    shift = number * (load.seconds + 1) * 1_000_000
    parts = []
    for second in range(load.seconds):
        whole = load.batch(second)
        for at in range(0, len(whole), size):
            part = slice(at, at + size)
            parts.append(
                SampleBatch(
                    whole.source_id,
                    whole.received_at + shift,
                    whole.channel_id[part],
                    whole.time[part] + shift,
                    whole.value[part],
                    whole.status[part],
                )
            )
    return parts


def _with_alarms(batches: Sequence[SampleBatch], every: int) -> Sequence[SampleBatch]:
    """The same, but one in ``every`` samples is above its high limit."""
    if not every:
        return batches
    random = np.random.default_rng(every)
    result = []
    for b in batches:
        value = np.where(random.integers(0, every, len(b)) == 0, 115.0, b.value)
        result.append(SampleBatch(b.source_id, b.received_at, b.channel_id, b.time, value, b.status))
    return result


def _body(batch: SampleBatch, load: Workload) -> bytes:
    """The batch as a DataChangeNotification (OPC 10000-4, 7.25.2)."""
    items = np.zeros(len(batch), _ITEM)
    items["handle"] = batch.channel_id - load.channel_id[0]
    items["mask"], items["kind"], items["value"] = _VALUE_AND_SOURCE, _DOUBLE, batch.value
    items["source"] = batch.time * 10 + UNIX_EPOCH_TICKS
    return len(batch).to_bytes(4, "little") + items.tobytes() + b"\xff\xff\xff\xff"


def _decode(body: bytes, batch: SampleBatch, load: Workload) -> SampleBatch:
    change = data_change(body, 0, len(body), batch.received_at)
    handle = np.concatenate(change.handle)
    return SampleBatch(
        batch.source_id,
        batch.received_at,
        load.channel_id[handle],
        np.concatenate(change.time),
        np.concatenate(change.value),
        np.concatenate(change.status),
    )


async def _ingest(
    bench: BenchDatabase, load: Workload, batches: Sequence[SampleBatch], bodies: Sequence[bytes], name: str
) -> dict[str, float]:
    """CPU seconds of decoding, of the spool's side of the collector, and of the writer."""
    folder = bench.folder / f"alarms-{name}"
    folder.mkdir()
    started = time.process_time()
    decoded = [_decode(body, batch, load) for body, batch in zip(bodies, batches, strict=True)]
    at_decoded = time.process_time()
    if not all(np.array_equal(a.value, b.value) for a, b in zip(decoded, batches, strict=True)):
        raise OperationError("the decoded values differ from the encoded ones")
    spool = Spool(folder / "bench.sqlite", _SPOOL_BYTES)
    before_spool = time.process_time()
    for batch in decoded:
        await spool.append(batch)
    await spool.close()
    at_spooled = time.process_time()
    writer = Writer(folder, bench.ingest_dsn, WriterOptions(connections=1))
    writer.drain()
    await writer.run()
    at_written = time.process_time()
    if writer.written != load.rows:
        raise OperationError(f"{load.rows} rows were sent, {writer.written} written")
    shutil.rmtree(folder)
    return {
        "decode": at_decoded - started,
        "spool": at_spooled - before_spool,
        "writer": at_written - at_spooled,
    }


class _NullSpool:
    """A spool that costs nothing."""

    notes: Mapping[str, str] = MappingProxyType({})
    limits = NO_LIMITS

    async def append(self, batch: Batch, notes: Notes | None = None) -> None:
        """Take it and forget it."""

    async def note(self, notes: Notes) -> None:
        """Take it and forget it."""

    async def wait_for_room(self) -> None:
        """There always is."""


class _CountingSpool(_NullSpool):
    """Counts the changes that it is given, behind which their events and notes were made."""

    def __init__(self) -> None:
        self.changes = 0

    async def append(self, batch: Batch, notes: Notes | None = None) -> None:
        """Count what are changes of alarms."""
        if not isinstance(batch, SampleBatch):
            self.changes += len(batch)


async def _evaluate(source: PushSource, ids: Mapping[str, int], batches: Sequence[SampleBatch]) -> tuple[float, int]:
    """CPU seconds of the stage, and how many alarms changed. What it costs to pass a batch on is not counted."""
    null_spool, counting_spool = _NullSpool(), _CountingSpool()
    evaluator = AlarmEvaluator(source, ids, batches[0].source_id, counting_spool)
    started = time.process_time()
    for batch in batches:
        await null_spool.append(batch)
    baseline = time.process_time() - started
    started = time.process_time()
    for batch in batches:
        await evaluator.append(batch)
    return time.process_time() - started - baseline, counting_spool.changes
