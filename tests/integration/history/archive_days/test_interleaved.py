"""Whatever comes, fails or restarts in between: each sample is in the database or in the archive, to the bit."""

from __future__ import annotations

import asyncio
import random
from datetime import datetime, timedelta
from typing import Any

import asyncpg
import pytest

from core.timestamps import begin
from history.archive import location as storage
from ops.maintenance.packing import compress_before
from tests.database import connected
from tests.integration.history.archive_maintenance import Key, Maintained
from tests.integration.history.archive_site import problems_of
from tests.integration.history.sealed_plant import BEFORE, DAY
from tests.sample_tables import HOUR_US, Sample, bits

_NAMES = ("unit/pressure", "other/flow", "unit/odd", "other/new")
_STEPS = 24
_INSERT = """
INSERT INTO plant.samples_raw (time, channel_id, value, status) VALUES ($2, $1, 2, 0) ON CONFLICT DO NOTHING
"""
_BATCH = """
INSERT INTO plant.ingest_batch (source_id, sequence, kind, rows, first_time, last_time, received_at)
VALUES ($1, $2, 'samples', 1, $3, $3, clock_timestamp())
"""
_DROP = """
SELECT s.action FROM plant.retention_units('raw') AS u
CROSS JOIN LATERAL plant.drop_slice('raw', u.relation, u.from_time, u.to_time, NULL, 'age', false) AS s
WHERE u.from_time = $1
"""


class Interleaving:
    """Steps of an archived plant in an order that a seed determines."""

    def __init__(self, plant: Maintained, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.plant = plant
        self.chance = random.Random(seed)
        self.patch = monkeypatch
        self.expected: dict[Key, tuple[int, int]] = {}
        self.done: list[str] = []

    async def late(self) -> None:
        """Samples arrive, some of them a second time, some with another value than they had."""
        name = self.chance.choice(_NAMES)
        channel = await self.plant.site.plant.channel(name)
        first = self.chance.choice((5, 6, 9)) * HOUR_US + self.chance.randrange(130) * 1_000_000
        sent = [(first + i * 1_000_000, bits(self.chance.choice((1.0, 40.5, -0.0))), 0) for i in range(3)]
        stored = await self.plant.stored()
        new = [sample for sample in sent if (channel, _time(sample)) not in stored]
        await self._insert(name, new)
        await self.plant.site.plant.batch("samples", 3, _moment(sent[0]), _moment(sent[-1]))
        self._expect(channel, new)

    async def unexplained(self) -> None:
        """A sample comes without evidence."""
        name = self.chance.choice(_NAMES)
        channel = await self.plant.site.plant.channel(name)
        new = [(self.chance.randrange(24) * HOUR_US + self.chance.randrange(10**9), bits(5.0), 0)]
        if (channel, _time(new[0])) not in self.expected:
            await self._insert(name, new)
            self._expect(channel, new)

    async def seal(self) -> None:
        """The job `seal` runs."""
        await self.plant.site.plant.seal()

    async def pack(self) -> None:
        """The job `compress` runs."""
        await compress_before(self.plant.owner, BEFORE)

    async def archive(self) -> None:
        """The job `archive` runs, as in a new process."""
        await self.plant.job()

    async def killed(self) -> None:
        """The job is killed at some access to the storage."""
        left = self.chance.randrange(1, 60)
        for name in ("move", "write", "remove", "clear", "digest", "size"):
            original = getattr(storage.Location, name)

            def access(*arguments: Any, original: Any = original) -> Any:
                nonlocal left
                left -= 1
                if left <= 0:
                    raise OSError(28, "No space left on device")
                return original(*arguments)

            self.patch.setattr(storage.Location, name, access)
        task = asyncio.create_task(self.plant.job())
        try:
            await asyncio.wait([task])
        finally:
            self.patch.undo()

    async def drop(self) -> None:
        """Retention runs for some classes or all."""
        await self.plant.owner.execute("DELETE FROM plant.rollup_dirty")
        await self.plant.drop(classes=self.chance.choice((None, None, ["short"], ["default"])))

    async def together(self) -> None:
        """Late samples come while the jobs run."""
        await asyncio.gather(self.archive(), self._late_elsewhere(), self._drop_elsewhere())

    async def _late_elsewhere(self) -> None:
        async with connected(self.plant.site.plant.database.owner_dsn) as other:
            for _ in range(3):
                channel = self.plant.site.plant.ids["other/flow"]
                new = [(10 * HOUR_US + self.chance.randrange(10**10), bits(2.0), 0)]
                await other.execute(_INSERT, channel, _moment(new[0]))
                await other.execute(
                    _BATCH, self.plant.site.plant.source, self.chance.randrange(10**12), _moment(new[0])
                )
                self._expect(channel, new)

    async def _drop_elsewhere(self) -> None:
        other = await asyncpg.connect(self.plant.site.plant.database.owner_dsn)
        try:
            await other.execute(_DROP, begin(DAY))
        except (asyncpg.LockNotAvailableError, asyncpg.DeadlockDetectedError):
            pass  # the next run
        finally:
            await other.close()

    async def _insert(self, name: str, new: list[Sample]) -> None:
        if new:
            await self.plant.site.plant.samples(name, new)

    def _expect(self, channel: int, new: list[Sample]) -> None:
        for sample in new:
            self.expected.setdefault((channel, _time(sample)), (sample[1], sample[2]))

    async def step(self) -> None:
        """One of these, and then each sample is there."""
        ways = (self.late, self.unexplained, self.seal, self.pack, self.archive, self.archive, self.killed, self.drop)
        way = self.chance.choice((*ways, self.drop, self.together))
        self.done.append(way.__name__)
        await way()
        # What the archive has comes first: the database may have another value that came later and was refused.
        assert {**await self.plant.stored(), **self.plant.in_archive()} == self.expected, self.done


def _time(sample: Sample) -> int:
    return int(begin(DAY).timestamp()) * 1_000_000 + sample[0]


def _moment(sample: Sample) -> datetime:
    return begin(DAY) + timedelta(microseconds=sample[0])


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
async def test_no_order_loses_a_sample(plant: Maintained, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    await plant.owner.execute("INSERT INTO plant.retention_class (name) VALUES ('short')")
    await plant.owner.execute("UPDATE plant.channel SET retention = 'short' WHERE name = 'unit/pressure'")
    world = Interleaving(plant, seed, monkeypatch)
    world.expected = await plant.stored()
    for _ in range(_STEPS):
        await world.step()
    await world.archive()
    if DAY in plant.site.opened.days():
        assert problems_of(plant.site.opened) == [], world.done
