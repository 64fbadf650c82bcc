"""1,000 samples a second, then with the writer killed, then with the database away: nothing is lost, nothing is there
twice, nothing is altered, nothing is there that was not published."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator

import pytest

from core.timestamps import now_us
from simulator.compare_samples import Comparison
from tests.e2e.appliance import Appliance, running
from tests.ports import free_ports
from tests.waiting import until_sync

SECOND = 1_000_000  # µs
RATE = 1_000  # samples/s by OPC UA, and 100 by Modbus
AWAY = 4.0  # s


@pytest.fixture(scope="module")
def appliance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Appliance]:
    with running(
        tmp_path_factory.mktemp("e2e") / "state", "--channels", str(RATE * 11 // 10), "--port", str(free_ports(13))
    ) as up:
        yield up


def exactly_once(result: dict[str, Comparison], seconds: float) -> None:
    total = result["all"]
    # On a busy machine a poll may come too late: then it is on record.
    assert (total.invented, total.altered, total.missing_silent) == (0, 0, 0), result
    # Modbus answers of the last seconds are not counted as published, see simulator.compare
    assert total.published >= total.stored - total.published * 0.05
    assert result["opcua"].published == result["opcua"].stored
    assert result["opcua"].published >= RATE * seconds / 2, "a busy machine publishes less, and not nothing"
    assert result["modbus"].stored > 0


@pytest.mark.gate
async def test_exactly_once_without_faults(appliance: Appliance) -> None:
    start = now_us() + SECOND
    result = await appliance.compared(start, start + 5 * SECOND)
    exactly_once(result, 5)


async def test_exactly_once_when_the_writer_is_killed(appliance: Appliance) -> None:
    start = now_us() + SECOND
    await appliance.until_stored(start + 2 * SECOND)
    killed = [appliance.kill("writer")]
    await appliance.until_stored(now_us() + 2 * SECOND)
    killed.append(appliance.kill("writer"))
    result = await appliance.compared(start, now_us() + SECOND)
    assert len(set(killed)) == 2
    exactly_once(result, 5)


async def test_exactly_once_when_the_database_is_stopped(appliance: Appliance) -> None:
    start = now_us() + SECOND
    await appliance.until_stored(start + 2 * SECOND)
    appliance.supervisor.stop_programs("postgres")
    gone = time.monotonic()
    until_sync(lambda: time.monotonic() - gone > AWAY and _waiting(appliance) > AWAY * RATE * 0.9)
    assert not appliance.writer_ready()
    appliance.supervisor.start_program("postgres")
    result = await appliance.compared(start, now_us() + SECOND)
    exactly_once(result, 2 + AWAY)
    until_sync(lambda: _waiting(appliance) < RATE)


async def test_exactly_once_when_the_database_is_killed(appliance: Appliance) -> None:
    """SIGKILL of the postmaster: the supervisor brings it back, its recovery and our replay do the rest."""
    start = now_us() + SECOND
    await appliance.until_stored(start + 2 * SECOND)
    pid = appliance.kill("postgres")
    until_sync(lambda: not _alive(pid))
    result = await appliance.compared(start, now_us() + SECOND)
    exactly_once(result, 4)


@pytest.mark.slow
async def test_down_drains_and_up_continues(appliance: Appliance) -> None:
    appliance.plantlog("down")
    assert appliance.oldest_waiting() == math.inf, "the spools are empty"
    appliance.plantlog("up")
    start = now_us() + SECOND
    exactly_once(await appliance.compared(start, start + 5 * SECOND), 5)


def _waiting(appliance: Appliance) -> int:
    return sum(spool["rows"] for spool in appliance.status()["spools"].values())


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
