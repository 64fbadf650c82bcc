"""Alarms between collector and spool: nothing is lost or told twice, whatever is killed or full."""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from core.batch import Event, SampleBatch
from core.errors import SpoolFull
from core.files import write_atomically
from core.samples import Samples
from core.timestamps import now_us
from ingest.alarms import checkpoint
from ingest.alarms.evaluator import AlarmEvaluator
from ingest.event_rows import event_id
from ingest.spool.append import Spool
from tests.alarms import BATCHES, IDS, SECOND, SOURCE, acknowledged_batches, batches, feed, source, spooled_events, tag
from tests.memory_appender import MemoryAppender
from tests.samples import T0
from tests.spooling import Spooled
from tests.waiting import until

MIB = 1024**2


def batch_of(value: float, at: int, channel: str = "a/level", bad: bool = False) -> SampleBatch:
    return SampleBatch(
        1,
        at,
        Samples(
            np.array([IDS[channel]], np.int32),
            np.array([at], np.int64),
            np.array([value]),
            np.array([0x80050000 if bad else 0], np.uint32),
        ),
    )


def alarm_actions(events: list[Event]) -> list[tuple[int, str, str, str]]:
    return [(e.time, str(e.channel_id), e.detail["limit"], e.detail["action"]) for e in events]


@pytest.mark.slow
async def test_killed_process_records_each_alarm_once(tmp_path: Path) -> None:
    """SIGKILL again and again; the source sends again what it was not told of, sometimes more than that."""
    seed = random.randrange(2**32)
    undisturbed = tmp_path / "undisturbed.sqlite"
    await feed(undisturbed, tmp_path / "undisturbed.told", seed)
    expected = spooled_events(undisturbed)
    assert len(expected) > 100

    path, alarm_log = tmp_path / "killed.sqlite", tmp_path / "killed.told"
    command = [sys.executable, "-m", "tests.alarms", str(path), str(alarm_log), str(seed)]
    killed = 0
    while (before := acknowledged_batches(alarm_log)) < BATCHES:
        goal = min(BATCHES, before + random.randrange(10, 80))
        process = await asyncio.create_subprocess_exec(*command, str(min(BATCHES, goal + 5)))
        await until(
            lambda p=process, n=goal: p.returncode is not None or acknowledged_batches(alarm_log) >= n, every=0.001
        )
        if process.returncode is None and goal < BATCHES:
            process.kill()
            killed += 1
        assert await process.wait() in (0, -9)
        if 3 < acknowledged_batches(alarm_log) < BATCHES and random.random() < 0.5:
            write_atomically(
                alarm_log, str(acknowledged_batches(alarm_log) - random.randrange(1, 3))
            )  # the answer did not arrive
    assert killed >= 3
    found = spooled_events(path)
    assert alarm_actions(found) == alarm_actions(expected), f"seed {seed}"
    assert [event_id(1, e) for e in found] == [event_id(1, e) for e in expected], f"seed {seed}"


@pytest.mark.slow
async def test_restart_before_each_batch_gives_the_same_alarms() -> None:
    for seed in range(20):
        undisturbed, restarted = MemoryAppender(), MemoryAppender()
        evaluator = AlarmEvaluator(SOURCE, IDS, 1, undisturbed)
        for batch in batches(seed):
            await evaluator.append(batch)
            await AlarmEvaluator(SOURCE, IDS, 1, restarted).append(batch)
        events, others = ([event_id(1, e) for e in kept_.events("alarm")] for kept_ in (undisturbed, restarted))
        assert len(events) > 100
        assert others == events, f"seed {seed}"


async def test_continuing_rate_alarm_is_one_over_a_restart() -> None:
    limited = source(tag("a/level", alarm_rate=1.0))
    appender = MemoryAppender()
    evaluator = AlarmEvaluator(limited, IDS, 1, appender)
    for k in range(30):
        if k in (15, 28):
            evaluator = AlarmEvaluator(limited, IDS, 1, appender)
        await evaluator.append(batch_of(2.0 * k, T0 + k * SECOND))
    assert [(at, action) for at, _, _, action in alarm_actions(appender.events("alarm"))] == [(T0 + SECOND, "raised")]


@pytest.fixture
async def spool(tmp_path: Path) -> AsyncIterator[Spool]:
    opened = Spool(tmp_path / "s.sqlite", 64 * MIB)
    yield opened
    await opened.close()


async def test_batch_without_changes_leaves_the_checkpoint_alone(spool: Spool) -> None:
    evaluator = AlarmEvaluator(SOURCE, IDS, 1, spool)
    for k in range(5):
        await evaluator.append(batch_of(5.0, T0 + k * SECOND))
    assert dict(spool.notes) == {}
    await evaluator.append(batch_of(8.5, T0 + 9 * SECOND), {"mine": "1"})
    assert set(spool.notes) == {"mine", checkpoint.note_name(IDS["a/level"])}


async def test_samples_that_are_quarantined_change_no_alarm() -> None:
    appender = MemoryAppender()
    evaluator = AlarmEvaluator(SOURCE, IDS, 1, appender)
    await evaluator.append(batch_of(9.5, T0))
    raised = len(appender.events("alarm"))
    for late in (2, -20 * 365):  # days: beyond future_limit, and older than oldest
        samples = batch_of(5.0, T0 + late * 86_400 * SECOND).samples
        await evaluator.append(replace(batch_of(5.0, T0), samples=samples))
    assert len(appender.events("alarm")) == raised
    assert len(appender.samples(IDS["a/level"])) == 3
    await evaluator.append(batch_of(5.0, T0 + SECOND))
    assert len(appender.events("alarm")) > raised


async def test_alarm_events_are_spooled_before_their_samples() -> None:
    appender = MemoryAppender()
    await AlarmEvaluator(SOURCE, IDS, 1, appender).append(batch_of(9.5, T0))
    assert [type(batch).__name__ for batch in appender.batches] == ["EventBatch", "SampleBatch"]
    assert [e.detail["limit"] for e in appender.events("alarm")] == ["hi", "hihi"]


async def test_alarm_is_recorded_when_samples_do_not_fit() -> None:
    appender = MemoryAppender()
    evaluator = AlarmEvaluator(SOURCE, IDS, 1, appender)
    appender.full = True
    with pytest.raises(SpoolFull):
        await evaluator.append(batch_of(8.5, T0))
    assert alarm_actions(appender.events("alarm")) == [(T0, "1", "hi", "raised")]
    appender.full = False
    await evaluator.append(batch_of(8.5, T0))  # the collector tries again
    assert len(appender.events("alarm")) == 1


class Refusing(MemoryAppender):
    """A disk that takes nothing for a while."""

    refuses = False

    async def append(self, batch, notes=None, beside=()):  # type: ignore[no-untyped-def]
        if self.refuses:
            raise SpoolFull("as the test wants it")
        await super().append(batch, notes, beside)

    async def note(self, notes) -> None:  # type: ignore[no-untyped-def]
        if self.refuses:
            raise SpoolFull("as the test wants it")
        await super().note(notes)


async def test_alarm_refused_by_the_disk_is_recorded_later() -> None:
    appender = Refusing()
    evaluator = AlarmEvaluator(SOURCE, IDS, 1, appender)
    appender.refuses = True
    with pytest.raises(SpoolFull):
        await evaluator.append(batch_of(8.5, T0))
    with pytest.raises(SpoolFull):
        await evaluator.append(batch_of(5.0, T0 + SECOND))
    appender.refuses = False
    await evaluator.append(batch_of(5.0, T0 + 2 * SECOND))
    assert alarm_actions(appender.events("alarm")) == [(T0, "1", "hi", "raised"), (T0 + SECOND, "1", "hi", "returned")]
    after = AlarmEvaluator(SOURCE, IDS, 1, appender)
    assert after.summary()["unacknowledged"] == 1


async def test_removed_limit_ends_its_alarm() -> None:
    appender = MemoryAppender()
    await AlarmEvaluator(SOURCE, IDS, 1, appender).append(batch_of(9.5, T0))
    less = source(tag("a/level", alarm_hi=8.0), *SOURCE.tags[1:])
    evaluator = AlarmEvaluator(less, IDS, 1, appender)
    running = asyncio.create_task(evaluator.run())
    await appender.until(lambda: len(appender.events("alarm")) == 3)
    running.cancel()
    assert appender.events("alarm")[-1].detail["limit"] == "hihi"
    assert appender.events("alarm")[-1].text == "normal"
    none = source(*(tag(t.name) for t in SOURCE.tags))
    evaluator = AlarmEvaluator(none, IDS, 1, appender)
    running = asyncio.create_task(evaluator.run())
    await appender.until(lambda: len(appender.events("alarm")) == 4)
    await appender.until(lambda: not any(note.startswith("alarm:") for note in appender.notes))
    running.cancel()


async def test_clock_step_and_suspension_are_no_silence() -> None:
    appender = MemoryAppender()
    evaluator = AlarmEvaluator(source(tag("a/level", alarm_stale=60.0)), IDS, 1, appender)
    now = now_us()
    for step in (1, 1, 3600, 1, 1, -86_400, 1, 300, 1):  # s, about as many of which samples could have come: 9
        now += step * SECOND
        evaluator.check_clock(now)
        assert evaluator.summary()["medium"] == 0
    for _ in range(60):
        now += SECOND
        evaluator.check_clock(now)
    assert evaluator.summary()["medium"] == 1


async def test_time_without_limits_is_no_step_of_the_clock(caplog: pytest.LogCaptureFixture) -> None:
    """When a limit is added, no clock is to blame, and the silence since then counts."""
    evaluator, now = AlarmEvaluator(source(tag("a/level")), IDS, 1, MemoryAppender()), now_us()
    for seconds in range(600):
        evaluator.check_clock(now + seconds * SECOND)
    evaluator.configure(source(tag("a/level", alarm_stale=60.0)), IDS)
    with caplog.at_level("INFO"):
        evaluator.check_clock(now + 600 * SECOND)
    assert evaluator.summary()["medium"] == 1
    assert "by the clock" not in caplog.text


def test_time_between_checks_has_two_explanations(caplog: pytest.LogCaptureFixture) -> None:
    evaluator = AlarmEvaluator(SOURCE, IDS, 1, MemoryAppender())
    with caplog.at_level("INFO"):
        evaluator.check_clock(now_us() + 15 * SECOND)
    assert "15.0 s passed by the clock between two checks: it was set, or this process did not run" in caplog.text


async def test_counter_that_is_reset_while_nothing_runs_is_one_event(tmp_path: Path) -> None:
    """Also where each process ends at once, and where the reset is the last that a process has read."""
    path, meter = tmp_path / "modbus.sqlite", source(tag("a/energy", kind="counter"), tag("a/level"))
    readings = [[6798.0], [6799.0], [3.0], [4.0], [9.0, 2.0], [5.0]]  # of six processes
    at = T0
    for process in readings:
        spool = Spool(path, 64 * MIB)
        evaluator = AlarmEvaluator(meter, {"a/energy": 1, "a/level": 2}, 1, spool)
        for value in process:
            at += 120 * SECOND
            await evaluator.append(batch_of(value, at))
        await spool.close()
    resets = [event for _, event in Spooled(path).events("counter_reset")]
    assert [event.text for event in resets] == ["6799 → 3", "9 → 2"]
    assert [event.time for event in resets] == [T0 + 360 * SECOND, T0 + 720 * SECOND]
