"""The load of the overload bench, and what its looks call as before."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import cycle
from typing import Any

import psutil
import pytest

from lab.bench.overload import flood
from lab.bench.overload.cost import Reading, costs, describe_changes
from lab.bench.overload.flood import LINES, Flood
from lab.chaos.stress import slowed
from lab.recovery import Observation, wait_for_recovery
from ops.maintenance.overload.measure import SpoolBacklog
from tests.waiting import PATIENCE, until

_SILENT = b""


@asynccontextmanager
async def answering(answers: Iterator[bytes]) -> AsyncIterator[str]:
    """An HTTP server that gives these answers, one a request."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                header = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
                await reader.readexactly(int(header.partition("content-length: ")[2].split()[0]))
                if status_line := next(answers):
                    writer.write(b"HTTP/1.1 %b\r\nContent-Length: 0\r\n\r\n" % status_line)
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def test_request_bodies_are_due_on_schedule_whatever_became_of_earlier_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(flood, "_ANSWER_SECONDS", 1.0)
    async with answering(cycle([_SILENT])) as url:
        gateways = Flood(url, ["a" * 20, "b" * 20])
        async with gateways.at(100 * LINES):
            await until(lambda: gateways.answers["offered"] >= 50 * LINES)
            assert gateways.answers["unanswered"] < gateways.answers["offered"], (
                "as many under way as a time-out allows"
            )
    assert gateways.answers["unanswered"] == gateways.answers["offered"] and not gateways.accepted


async def test_refusal_counts_only_with_retry_after() -> None:
    answers = [b"204 No Content", b"503 Busy\r\nRetry-After: 1", b"429 Slow\r\nRetry-After: 2", b"503 Busy", b"500 No"]
    async with answering(cycle(answers)) as url:
        gateways = Flood(url, ["a" * 20])
        async with gateways.at(100 * LINES):
            await until(lambda: gateways.answers["offered"] >= 20 * LINES)
    lines = gateways.answers
    assert lines["taken"] == LINES * len(gateways.accepted) > 0 and lines["unanswered"] == 0
    assert lines["refused"] + lines["wrong"] + lines["taken"] == lines["offered"]
    assert abs(lines["refused"] - lines["wrong"]) <= 2 * LINES


def source(**other: Any) -> dict[str, Any]:
    return {
        "name": "plc", "kind": "modbus", "state": "connected", "missed": 5, "pace_seconds": 0.0, "due_at": 0,
        "last_sample_at": 100_000_000, **other,
    }  # fmt: skip


def seen(of: dict[str, Any] | None = None, waits: float = 0.0, since: float | None = None) -> Observation:
    health_reports: dict[str, dict[str, Any] | None] = {
        "collector-modbus": {"sources": [of or source()]},
        "maintenance": {"overload": {"since": since}},
    }
    return Observation(0.0, 101.0, health_reports, {"modbus": SpoolBacklog(waits, 0)})


@pytest.mark.parametrize(
    ("now", "wrong"),
    [
        (seen(), ""),
        (seen(source(state="disconnected")), "source plc is disconnected"),
        (seen(source(state="connecting")), "source plc is connecting"),
        (seen(source(state="connecting", kind="push")), ""),
        (seen(source(missed=6)), "polls of source plc are late"),
        (seen(source(pace_seconds=2.4)), "polls of source plc are late"),
        (seen(source(due_at=98_000_000)), "polls of source plc are late"),
        (seen(source(last_sample_at=97_000_000)), "the newest sample of source plc is 4.0 s old"),
        (seen(source(last_sample_at=97_000_000, kind="push")), ""),
        (seen(waits=3.0), "spool modbus has been waiting for the database for 3.0 s"),
        (replace(seen(), reports={"writer": None}), "writer does not respond"),
    ],
)
def test_unrecovered_state_is_reported(now: Observation, wrong: str) -> None:
    assert now.problems(seen(), 1.0) == ([wrong] if wrong else [])


async def test_recovery_counts_from_the_first_calm_observation() -> None:
    loop = asyncio.get_running_loop()
    began = loop.time()

    looks: list[Observation] = []

    def look() -> Observation:
        waits, since = 9.0 if len(looks) < 2 else 0.0, 1.0 if len(looks) < 8 else None
        looks.append(replace(seen(waits=waits, since=since), at=loop.time()))
        return looks[-1]

    after = await wait_for_recovery(look, began, 1.0, PATIENCE)
    assert (after.remaining, after.seconds) == ([], looks[2].at - began)
    assert len(looks) > 8, "the overload has ended"
    never = await wait_for_recovery(lambda: replace(seen(since=1.0), at=loop.time()), loop.time(), 1.0, 1.0)
    assert never.remaining == ["overload has not ended"]


async def test_a_slowed_process_and_its_children_are_suspended_again_and_again() -> None:
    waits = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'input()'])"
    with psutil.Popen([sys.executable, "-c", waits], stdin=subprocess.PIPE) as parent:
        await until(parent.children)
        both = [parent, *parent.children()]

        def suspended() -> set[bool]:
            return {child.status() == psutil.STATUS_STOPPED for child in both}

        async with slowed(parent.pid, 0.5):
            for state in (True, False, True):
                await until(lambda state=state: suspended() == {state})
        await until(lambda: suspended() == {False})
        parent.communicate(b"\n")


def readings(first: int, seconds: int, closing: float) -> list[Reading]:
    """100 samples a second at 5 µs each by the writer; in the third second of a minute maintenance takes more."""
    found = [Reading(first, 0, {"writer": 0.0, "rollups": 0.0})]
    for at in range(first, first + seconds):
        last = found[-1]
        more = closing if at % 60 == 3 else 0.0
        cpu = {"writer": last.cpu["writer"] + 5e-4, "rollups": last.cpu["rollups"] + more * 1e-6}
        found.append(Reading(at + 1.02, last.written + 100, cpu))
    return found


@pytest.mark.parametrize(("after", "cost"), [(110, 5.0), (117, 6.0), (121, 6.0), (124, 5.0)])
def test_seconds_are_compared_with_the_same_seconds_of_the_previous_minute(after: int, cost: float) -> None:
    before = readings(17, 60, 1000.0)
    same = costs(before, readings(after, 10, 1000.0))
    assert [measured.sum for measured in same] == pytest.approx([cost, cost])
    assert describe_changes(*same) == ""
    assert costs(before[:3], readings(after, 10, 1000.0))[0].sum == pytest.approx(5.0)
    more = costs(before, readings(121, 10, 3000.0))
    assert describe_changes(*more) == "rollups 1.00 → 3.00"
