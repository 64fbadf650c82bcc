"""The steps, for one contestant at a time, each in its own fresh folder.

A contestant has the machine to itself: it is started, filled, measured and ended before the next one starts, and the
order is another one in each repeat. The data's generator and the client's part (encoding, decoding) are on the clock
of all of them.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from lab.bench.choose.answers import ODD_CHANNELS, Answers, ask_oddities, compare, send_oddities
from lab.bench.choose.contestant import Contestant
from lab.bench.choose.plan import Plan
from lab.bench.data import (
    DAY,
    HOUR,
    SECOND,
    START,
    Columns,
    History,
    Minutes,
    Plant,
    Raw,
    batches,
    channel_names,
    channel_units,
)

SIZES = (100, 1_000, 10_000, 100_000)  # samples a batch
CLIENTS = (1, 2, 4, 8)
FRACTIONS = (0.9, 0.7, 0.5, 0.35, 0.25, 0.15, 0.1, 0.05)  # of the best ingest: tried in turn, until one holds
LIMIT_SECONDS = 1.0  # p99 from when a batch was due to its acknowledgement
SEEN_SECONDS = 2.0  # from the last acknowledgement until queries see all
_GIVE_UP_SECONDS = 3.0  # so far behind a rate does not hold
_STUCK_SECONDS = 300.0  # for any step, beside its own length
_WARM_UP = 5  # queries
_LOAD_SIZE = 50_000  # samples a batch of the history
ProgressCallback = Callable[[str], None]


@dataclass(slots=True)
class Measurement:
    """Measurements of a contestant; those that it did not come to are missing. Rates are samples/s."""

    name: str
    settings: str
    by_size: dict[int, float] = field(default_factory=dict)
    by_clients: dict[int, float] = field(default_factory=dict)
    tried: dict[float, float] = field(default_factory=dict)  # rate → p99 s; infinity: it did not keep up
    sustained: float | None = None
    sustained_p99: float | None = None  # s
    raw_ms: list[float] = field(default_factory=list)
    minute_ms: list[float] = field(default_factory=list)
    live_p99: float | None = None  # s, of what came in meanwhile
    bytes_per_sample: float | None = None
    answers: Answers = field(default_factory=dict)
    failed: str | None = None


async def measure(contestants: Sequence[Contestant], plan: Plan, progress: ProgressCallback) -> list[list[Measurement]]:
    """For each contestant its repeats."""
    found: dict[str, list[Measurement]] = {contestant.name: [] for contestant in contestants}
    history = History(Plant(plan.channels, START).samples(plan.history_seconds))
    for repeat in range(plan.repeats):
        turn = repeat * len(contestants) // plan.repeats
        for contestant in [*contestants[turn:], *contestants[:turn]]:
            with tempfile.TemporaryDirectory(prefix="plantlog-choose-") as folder:
                measurement = await _measure_one(contestant, plan, history, Path(folder), progress)
            found[contestant.name].append(measurement)
            progress(f"{contestant.name}: {measurement.failed or 'done'} ({repeat + 1} of {plan.repeats})")
    return list(found.values())


async def _measure_one(
    contestant: Contestant, plan: Plan, history: History, folder: Path, progress: ProgressCallback
) -> Measurement:
    """A failure is on record, with what was measured before."""
    measurement = Measurement(contestant.name, contestant.settings)
    try:
        try:
            await contestant.start(folder)
            await _Steps(contestant, plan, history, measurement, progress).run()
        finally:
            await contestant.stop()
    except BaseExceptionGroup as group:
        measurement.failed = f"{type(group.exceptions[0]).__name__}: {group.exceptions[0]}"[:500]
    except Exception as error:  # whatever its driver raises
        measurement.failed = f"{type(error).__name__}: {error}"[:500]
    return measurement


class _Steps:
    """Steps of a contestant in a repeat. The history comes first, so that everything is measured with data there."""

    def __init__(
        self, contestant: Contestant, plan: Plan, history: History, measurement: Measurement, progress: ProgressCallback
    ) -> None:
        self._contestant = contestant
        self._plan = plan
        self._history = history
        self._measurement = measurement
        self._progress = progress
        self._next = START + 2 * DAY  # µs: from where on nothing was written

    async def run(self) -> None:
        """The history with step 5, then steps 1 to 4. The answers are compared in step 4."""
        measurement = self._measurement
        names, units = (f(self._plan.channels + ODD_CHANNELS) for f in (channel_names, channel_units))
        await self._contestant.create(names, units)
        odd_channel, at = self._plan.channels + 1, self._plan.oddities
        refused = await send_oddities(self._contestant, odd_channel, at)
        await self._fill()
        measurement.answers = await ask_oddities(self._contestant, odd_channel, at, refused)
        for size in SIZES:
            measurement.by_size[size] = await self._ingest(size, 1)
            self._progress(f"{measurement.name}: batches of {size}: {measurement.by_size[size]:,.0f}/s")
        best_size = max(measurement.by_size, key=measurement.by_size.__getitem__)
        for clients in CLIENTS:
            measurement.by_clients[clients] = await self._ingest(best_size, clients)
            self._progress(f"{measurement.name}: {clients} clients: {measurement.by_clients[clients]:,.0f}/s")
        best_clients = max(measurement.by_clients, key=measurement.by_clients.__getitem__)
        await self._sustain(best_size, best_clients)
        await self._ask()

    async def _fill(self) -> None:
        """The history, and step 5: bytes a sample when it has settled."""
        plant = Plant(self._plan.channels, START)
        left = self._history.samples
        for batch in batches(plant, _LOAD_SIZE):
            part = batch[:left]
            await self._contestant.write(part, 0)
            left -= len(part)
            if not left:
                break
        await self._contestant.wait_until_visible()
        await self._contestant.settle(START + DAY)
        self._measurement.bytes_per_sample = await self._contestant.size() / self._history.samples
        self._progress(f"{self._measurement.name}: {self._measurement.bytes_per_sample:.2f} bytes a sample")

    def _plant(self) -> Plant:
        return Plant(self._plan.channels, self._next)

    def _advance(self, plant: Plant) -> None:
        self._next = plant.next // HOUR * HOUR + HOUR

    async def _ingest(self, size: int, clients: int) -> float:
        """Steps 1 and 2: samples/s, each client sending its next batch when the one before is acknowledged, from the
        first one on until all are seen."""
        plant, rows = self._plant(), 0
        stream = batches(plant, size)
        started = time.perf_counter()

        async def client(number: int) -> None:
            nonlocal rows
            while time.perf_counter() - started < self._plan.cell_seconds:
                batch = next(stream)
                await self._contestant.write(batch, number)
                rows += len(batch)

        async with asyncio.timeout(_STUCK_SECONDS + self._plan.cell_seconds), asyncio.TaskGroup() as group:
            for number in range(clients):
                group.create_task(client(number))
        async with asyncio.timeout(_STUCK_SECONDS):
            await self._contestant.wait_until_visible()
        self._advance(plant)
        return rows / (time.perf_counter() - started)

    async def _sustain(self, size: int, clients: int) -> None:
        """Step 3: the highest of the rates that holds for as long as planned."""
        measurement = self._measurement
        best = max(*measurement.by_size.values(), *measurement.by_clients.values())
        for fraction in FRACTIONS:
            rate = best * fraction
            p99 = await self._paced(rate, size, clients, self._plan.hold_seconds, asyncio.Event())
            measurement.tried[rate] = p99
            self._progress(f"{measurement.name}: {rate:,.0f}/s: p99 {p99:.3f} s")
            if p99 <= LIMIT_SECONDS:
                measurement.sustained, measurement.sustained_p99 = rate, p99
                return
        measurement.sustained = 0.0

    async def _paced(self, rate: float, size: int, clients: int, seconds: float, stop: asyncio.Event) -> float:
        """p99, in s, from when a batch was due to its acknowledgement; infinity where it does not keep up, or all is
        not seen in time at the end."""
        size = max(1, min(size, int(rate / 10)))  # ten batches a second, at least
        plant = self._plant()
        stream = batches(plant, size)
        due: asyncio.Queue[tuple[float, Columns] | None] = asyncio.Queue()
        latencies: list[float] = []
        started = time.perf_counter()
        behind = False

        async def client(number: int) -> None:
            while (task := await due.get()) is not None:
                await self._contestant.write(task[1], number)
                latencies.append(time.perf_counter() - task[0])

        async with (
            asyncio.timeout(_STUCK_SECONDS + seconds if seconds < np.inf else None),
            asyncio.TaskGroup() as group,
        ):
            for number in range(clients):
                group.create_task(client(number))
            count = 0
            while (at := started + count * size / rate) - started < seconds and not stop.is_set() and not behind:
                with suppress(TimeoutError):
                    async with asyncio.timeout(max(0.0, at - time.perf_counter())):
                        await stop.wait()
                due.put_nowait((at, next(stream)))
                count += 1
                behind = due.qsize() * size / rate > _GIVE_UP_SECONDS or time.perf_counter() - at > _GIVE_UP_SECONDS
            for _ in range(clients):
                due.put_nowait(None)
        self._advance(plant)
        ended = time.perf_counter()
        async with asyncio.timeout(_STUCK_SECONDS):
            await self._contestant.wait_until_visible()
        in_time = time.perf_counter() - ended <= SEEN_SECONDS and not behind
        return float(np.percentile(latencies, 99)) if in_time and latencies else float("inf")

    async def _ask(self) -> None:
        """Step 4, and the comparison: half of the history of random channels, raw and by the minute, one by one."""
        measurement, stop = self._measurement, asyncio.Event()
        live = asyncio.create_task(self._paced(self._plan.live_rate, 1_000, 1, float("inf"), stop))
        raw: list[tuple[Raw, Raw]] = []
        minutes: list[tuple[Minutes, Minutes]] = []
        until = time.perf_counter() + self._plan.query_seconds
        try:
            for number, (channel, first, last) in enumerate(self._intervals()):
                if time.perf_counter() > until and number > _WARM_UP:
                    break
                started = time.perf_counter()
                samples = await self._contestant.raw(channel, first, last)
                between = time.perf_counter()
                means = await self._contestant.by_minute(channel, first, last)
                ended = time.perf_counter()
                if number >= _WARM_UP:
                    measurement.raw_ms.append((between - started) * 1000)
                    measurement.minute_ms.append((ended - between) * 1000)
                raw.append((self._history.raw(channel, first, last), samples))
                minutes.append((self._history.by_minute(channel, first, last), means))
        finally:
            stop.set()
            measurement.live_p99 = await live
        measurement.answers = {**compare(raw, minutes), **measurement.answers}

    def _intervals(self) -> Iterator[tuple[int, int, int]]:
        """Channel, first, last (µs), by chance, none twice; minutes are whole, so that means are of whole minutes."""
        random = np.random.default_rng(9)
        room = (self._plan.history_seconds * SECOND - self._plan.interval) // (60 * SECOND) + 1
        order = random.permutation(room * self._plan.channels)
        for place in order.tolist():
            first = START + place // self._plan.channels * 60 * SECOND
            yield place % self._plan.channels + 1, first, first + self._plan.interval // (60 * SECOND) * 60 * SECOND
