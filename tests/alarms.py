"""A source with limits and its samples, for tests of alarms; also a process of its own that a test may kill.

``python -m tests.alarms SPOOL ACKNOWLEDGED SEED LAST``: appends the batches of ``SEED`` to a spool, from the batch
``ACKNOWLEDGED`` on, as a collector does whose source sends again what was not acknowledged; behind ``LAST``, where that
is not the last of all, it waits to be killed.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from random import Random

import numpy as np

from core.batch import Event, SampleBatch
from core.config.sources import ModbusSource, ModbusTag
from core.files import write_atomically
from core.samples import Samples
from ingest.alarms.evaluator import AlarmEvaluator
from ingest.spool.append import Spool
from tests.samples import T0
from tests.spooling import Spooled
from tests.waiting import PATIENCE

SECOND = 1_000_000
BATCHES = 300
_MIB = 1024**2


def source(*tags: ModbusTag) -> ModbusSource:
    return ModbusSource(name="plc", kind="modbus", address="tcp://127.0.0.1:502", tags=tags)


def tag(name: str, **columns: object) -> ModbusTag:
    return ModbusTag(name=name, address="holding:0", **columns)  # type: ignore[arg-type]


SOURCE = source(
    tag("a/level", alarm_lolo=1.0, alarm_lo=2.0, alarm_hi=8.0, alarm_hihi=9.0, alarm_deadband=0.5),
    tag("a/flow", alarm_hi=7.0, alarm_delay=3.0, alarm_off_delay=2.0),
    tag("a/latched", alarm_hi=6.0, alarm_latch=True, alarm_priority="critical"),
    tag("a/quality", alarm_bad=True),
    tag("a/plain"),
)
IDS = {tag_.name: number for number, tag_ in enumerate(SOURCE.tags, 1)}


def batches(seed: int) -> list[SampleBatch]:
    """A sample a second of each channel; now and then one is Bad."""
    random = Random(seed)
    made = []
    n = len(IDS)
    for k in range(BATCHES):
        at = T0 + k * SECOND
        values = [random.choice([0.5, 2.2, 5.0, 6.5, 7.5, 8.5, 10.0]) if random.random() < 0.3 else 5.0 for _ in IDS]
        status = [0x80050000 if random.random() < 0.05 else 0 for _ in IDS]
        made.append(
            SampleBatch(
                1,
                at,
                Samples(
                    np.arange(1, n + 1, dtype=np.int32),
                    np.full(n, at, np.int64),
                    np.array(values),
                    np.array(status, np.uint32),
                ),
            )
        )
    return made


def acknowledged_batches(acknowledged: Path) -> int:
    """Number of batches that the source was told of."""
    return int(acknowledged.read_text()) if acknowledged.exists() else 0


async def feed(path: Path, acknowledged: Path, seed: int, last: int = BATCHES) -> None:
    """Append, and tell the source after each batch."""
    spool = Spool(path, 64 * _MIB)
    evaluator = AlarmEvaluator(SOURCE, IDS, 1, spool)
    first = acknowledged_batches(acknowledged)
    for number, batch in enumerate(batches(seed)[first:last], first):
        await evaluator.append(batch)
        write_atomically(acknowledged, str(number + 1))
    if last < BATCHES:
        await asyncio.sleep(PATIENCE)
    await spool.close()


def spooled_events(path: Path) -> list[Event]:
    """The alarm events in a spool, in order."""
    return [event for _, event in Spooled(path).events("alarm")]


if __name__ == "__main__":
    asyncio.run(feed(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])))
