"""``plantlog sql`` over a database and an archive: each sample once, wherever it is."""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from threading import Barrier, BrokenBarrierError
from typing import Any

import pytest

from core.timestamps import begin
from history.reading.day_samples import DaySamples
from history.sql.sources.portion import compute
from tests import repository_servers
from tests.config_in_force import activate
from tests.integration.history.archive_maintenance import Maintained
from tests.integration.history.sealed_plant import DAY, SealedPlant, minute
from tests.integration.history.sql.asking import (
    LIMITS,
    NEXT,
    Opened,
    archived_and_dropped,
    both_days,
    failure,
    rows_of,
    samples,
)
from tests.repository_servers import running
from tests.sample_tables import HOUR_US, bits
from tests.waiting import PATIENCE


async def test_same_samples_before_and_after_a_day_is_archived_and_dropped(plant: Maintained) -> None:
    expected = await both_days(plant)
    assert len(expected) == 1160
    assert await samples(plant) == expected
    assert (await plant.job()).outcome == "ok"
    assert await samples(plant) == expected
    assert await plant.drop() == ["chunk"]
    assert await plant.stored() == {}
    assert await samples(plant) == expected


async def test_packed_day_is_the_same(plant: Maintained) -> None:
    expected = await both_days(plant)
    await plant.site.plant.pack()
    assert await samples(plant) == expected
    await plant.job()
    assert await samples(plant) == expected


async def test_packed_channels_with_few_samples_are_read_together(
    plant: Maintained, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Channels that are not packed may have many samples: they are read one at a time."""
    monkeypatch.setattr("history.sql.sources.portion._AT_A_TIME", 100_000)
    read = Opened(monkeypatch)
    query = f"SELECT count(*) FROM samples WHERE time < '{NEXT}'"
    before = await rows_of(plant, query)
    assert [len(channels) for channels, *_ in read.live] == [1] * len(read.live)
    n = len(read.live)
    assert n > 1
    await plant.site.plant.pack()
    read.live.clear()
    assert await rows_of(plant, query) == before
    assert [len(channels) for channels, *_ in read.live] == [n]


@pytest.mark.slow
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    "query",
    ["SELECT count(*) FROM samples", f"FROM runs_of(NULL, DATE '{DAY}', DATE '{NEXT}', INTERVAL '0 s')"],
    ids=["rows", "kernel"],
)
async def test_as_many_threads_read_as_the_limit_says(
    plant: Maintained, monkeypatch: pytest.MonkeyPatch, query: str, threads: int
) -> None:
    meeting, met = Barrier(2), list[bool]()

    def compute_together(*arguments: Any) -> Any:
        with suppress(BrokenBarrierError):
            if not met:
                meeting.wait(PATIENCE if threads == 2 else 0.1)
                met.append(True)
        return compute(*arguments)

    monkeypatch.setattr("history.sql.sources.portion._AT_A_TIME", 100_000)  # each channel is a portion
    monkeypatch.setattr("history.sql.sources.samples.compute", compute_together)
    await rows_of(plant, query, limits=replace(LIMITS, threads=threads))
    assert bool(met) == (threads == 2)


async def test_late_samples_count_at_once_and_as_an_amendment(plant: Maintained) -> None:
    expected = await both_days(plant)
    await archived_and_dropped(plant)
    await plant.late()
    await plant.late("other/level", minute(0, [3.0] * 5, 7))  # a channel that had none
    expected |= await plant.stored()
    assert len(await plant.stored()) == 6
    assert await samples(plant) == expected
    await plant.job()
    assert (await plant.archived())[0] == (DAY, 1, 1)
    assert await samples(plant) == expected
    assert await plant.drop() == ["chunk"]
    assert await samples(plant) == expected
    level = plant.site.plant.ids["other/level"]
    assert await samples(plant, f"channel_id = {level}") == {k: v for k, v in expected.items() if k[0] == level}


async def test_late_samples_of_a_day_that_is_archived_and_not_dropped(plant: Maintained) -> None:
    await plant.job()
    await plant.site.plant.samples("unit/pressure", [(9 * HOUR_US, bits(1.0), 0)])  # without evidence, too
    assert await samples(plant) == await both_days(plant)


async def test_archived_sample_stays_if_another_value_comes(plant: Maintained) -> None:
    expected = await both_days(plant)
    await archived_and_dropped(plant)
    await plant.late("unit/pressure", minute(0, [1.0] * 121, 5))
    expected |= {key: value for key, value in (await plant.stored()).items() if key not in expected}
    assert await samples(plant) == expected


async def test_deleted_samples_are_gone_although_they_are_archived(plant: Maintained) -> None:
    await plant.job()
    await plant.site.plant.delete("unit/pressure", begin(DAY, 5), begin(DAY, 6))
    await plant.site.plant.delete("unit/odd", begin(DAY), begin(DAY, 24))
    expected = await both_days(plant)
    assert len(expected) == 1160 - 120 - 200
    assert await samples(plant) == expected


async def test_day_that_is_dropped_while_it_is_read_is_an_error(
    plant: Maintained, monkeypatch: pytest.MonkeyPatch
) -> None:
    main = asyncio.get_running_loop()

    class DroppedBefore(DaySamples):
        async def read(self, *arguments: Any) -> Any:
            future = asyncio.run_coroutine_threadsafe(archived_and_dropped(plant), main)
            await asyncio.wrap_future(future)
            return await super().read(*arguments)

    monkeypatch.setattr("history.sql.sources.database.DaySamples", DroppedBefore)
    query = f"SELECT count(*) FROM samples WHERE time < '{NEXT}'"
    assert "dropped while they were read" in await failure(plant, query)
    monkeypatch.undo()
    assert await rows_of(plant, query) == [(680,)]


async def test_samples_of_another_installation_are_there_too(
    plant: Maintained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with SealedPlant(plant.site.plant.database, tmp_path / "south", "south") as south:
        assert (await plant.job()).outcome == "ok"
        await south.samples("south/level", minute(0, [1.0] * 60))
        expected = await both_days(plant)
        read = Opened(monkeypatch)
        for state in (plant.site.plant.state, south.state):
            query = f"SELECT count(*), count(DISTINCT (channel_id, time)) FROM samples WHERE time < '{NEXT}'"
            assert await rows_of(plant, query, state=state) == [(740, 740)]
            assert set(read.files) == {str(DAY)}
            assert read.live == [([south.ids["south/level"]], begin(DAY), begin(DAY, 24))]
            read.files.clear()
            read.live.clear()
        assert await samples(plant) == expected


@pytest.mark.slow
@pytest.mark.skipif(repository_servers.missing() != "", reason=repository_servers.missing())
async def test_archive_in_a_bucket(plant: Maintained, tmp_path: Path) -> None:
    expected = await both_days(plant)
    peer = repository_servers.s3(tmp_path / "server", tmp_path / "files")
    of = peer.options(Path("/dev/null"))
    options = {
        "location": "s3://plantlog/archive",
        "s3_endpoint": of.s3_endpoint,
        "key_file": of.key_file,
        "ca_file": of.ca_file,
    }
    lines = "\n".join(f'{name} = "{value}"' for name, value in options.items())
    (tmp_path / "s3.toml").write_text(re.sub("location = .*", lines, (tmp_path / "plant.toml").read_text()))
    activate(plant.site.plant.state.root, tmp_path / "s3.toml")
    await plant.owner.execute("UPDATE plant.installation SET archive_location = $1", options["location"])
    with running(peer):
        await archived_and_dropped(plant)
        assert await samples(plant) == expected
    assert "archive s3://plantlog/archive: " in await failure(plant, "SELECT count(*) FROM samples")
